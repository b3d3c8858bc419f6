//! The parts of a Chrome trace that matter here, picked out while it is parsed.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// What was picked out.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub memory: Vec<Memory>,
    pub spans: Vec<Span>,
    pub devices: Vec<DeviceProperties>,
    pub base_ns: Option<i128>,
    pub rank: Option<u64>,
    pub world_size: Option<u64>,
    /// Written by our own exporter: sizes are as the program asked.
    pub exact_sizes: bool,
    index: u64,
}

/// A `[memory]` event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Which of the file's events it is, counted from 0.
    pub index: u64,
    /// Nanoseconds on the file's clock.
    pub at: i128,
    pub addr: Option<u64>,
    pub bytes: i64,
    /// `Total Allocated`, after the event.
    pub total: Option<u64>,
    pub reserved: Option<u64>,
    pub stream: Option<u64>,
    pub device: u32,
    pub device_type: i64,
}

/// A span of the program, on the file's clock.
#[derive(Debug)]
pub(super) struct Span {
    pub name: String,
    pub start: i128,
    pub end: i128,
}

/// A row of `deviceProperties`.
#[derive(Debug, Deserialize)]
pub(super) struct DeviceProperties {
    pub id: u64,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default, rename = "totalGlobalMem")]
    pub total_global_mem: Option<u64>,
}

/// The document: an object with `traceEvents`, or the list of events alone.
pub(super) struct Top<'a>(pub &'a mut Parsed);

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Chrome trace")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => map.next_value_seed(Events(self.0))?,
                "deviceProperties" => self.0.devices = map.next_value()?,
                "baseTimeNanoseconds" => self.0.base_ns = map.next_value::<Lenient>()?.int(),
                "otherData" => {
                    let OtherData { writer } = map.next_value()?;
                    self.0.exact_sizes = writer.as_deref() == Some("poolsim");
                }
                "distributedInfo" => {
                    let info: Distributed = map.next_value()?;
                    let number = |n: Lenient| n.int().and_then(|n| u64::try_from(n).ok());
                    (self.0.rank, self.0.world_size) = (number(info.rank), number(info.world_size));
                }
                _ => map.next_value::<IgnoredAny>().map(drop)?,
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        Events(self.0).visit_seq(seq)
    }
}

#[derive(Deserialize)]
struct OtherData {
    #[serde(default)]
    writer: Option<String>,
}

#[derive(Deserialize)]
struct Distributed {
    #[serde(default)]
    rank: Lenient,
    #[serde(default)]
    world_size: Lenient,
}

struct Events<'a>(&'a mut Parsed);

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of trace events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(event) = seq.next_element::<RawEvent>()? {
            self.0.take(event);
            self.0.index += 1;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct RawEvent {
    #[serde(default)]
    name: Name,
    #[serde(default)]
    cat: Category,
    #[serde(default)]
    ts: Lenient,
    #[serde(default)]
    dur: Lenient,
    #[serde(default)]
    args: Args,
}

impl Parsed {
    fn take(&mut self, event: RawEvent) {
        let Some(at) = event.ts.micros_as_nanos() else { return };
        match event.name {
            Name::Memory => {
                let Args { device_type, device, addr, bytes, total, reserved, stream } = event.args;
                let unsigned = |n: Lenient| n.int().and_then(|n| u64::try_from(n).ok());
                let Some(bytes) = bytes.int().and_then(|n| i64::try_from(n).ok()) else { return };
                self.memory.push(Memory {
                    index: self.index,
                    at,
                    addr: unsigned(addr),
                    bytes,
                    total: unsigned(total),
                    reserved: unsigned(reserved),
                    stream: unsigned(stream),
                    device: device.int().and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
                    device_type: device_type.int().and_then(|n| i64::try_from(n).ok()).unwrap_or(0),
                });
            }
            Name::Other(name)
                if event.cat == Category::User || name.starts_with("ProfilerStep#") =>
            {
                let end = at + event.dur.micros_as_nanos().unwrap_or(0).max(0);
                self.spans.push(Span { name, start: at, end });
            }
            Name::Other(_) => {}
        }
    }
}

#[derive(PartialEq, Eq)]
enum Name {
    Memory,
    /// Empty where the event is not of an annotation; kept where it may be.
    Other(String),
}

impl Default for Name {
    fn default() -> Self {
        Name::Other(String::new())
    }
}

#[derive(Default, PartialEq, Eq)]
enum Category {
    #[default]
    Other,
    User,
}

/// A field of `args`, or none.
#[derive(Default)]
struct Args {
    device_type: Lenient,
    device: Lenient,
    addr: Lenient,
    bytes: Lenient,
    total: Lenient,
    reserved: Lenient,
    stream: Lenient,
}

/// A number, however it is written; anything else is none.
#[derive(Clone, Copy, Debug, Default)]
enum Lenient {
    #[default]
    None,
    Int(i128),
    Float(f64),
}

impl Lenient {
    fn int(self) -> Option<i128> {
        match self {
            Lenient::None => None,
            Lenient::Int(n) => Some(n),
            Lenient::Float(f) => (f.fract() == 0.0 && f.abs() < 2f64.powi(63)).then_some(f as i128),
        }
    }

    fn micros_as_nanos(self) -> Option<i128> {
        match self {
            Lenient::None => None,
            Lenient::Int(n) => Some(n * 1000),
            Lenient::Float(f) => (f.abs() < 2f64.powi(63)).then(|| (f * 1000.0).round() as i128),
        }
    }
}

/// Visitors that take any value and make a default of what they do not expect.
macro_rules! any_value {
    ($type:ty, $visitor:ident, { $($method:item)* }) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any($visitor)
            }
        }

        struct $visitor;

        impl<'de> Visitor<'de> for $visitor {
            type Value = $type;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<$type, E> {
                Ok(<$type>::default())
            }

            fn visit_bool<E>(self, _: bool) -> Result<$type, E> {
                Ok(<$type>::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<$type, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(<$type>::default())
            }

            $($method)*
        }
    };
}

macro_rules! no_map {
    ($type:ty) => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$type, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(<$type>::default())
        }
    };
}

macro_rules! no_numbers {
    ($type:ty) => {
        fn visit_u64<E>(self, _: u64) -> Result<$type, E> {
            Ok(<$type>::default())
        }

        fn visit_i64<E>(self, _: i64) -> Result<$type, E> {
            Ok(<$type>::default())
        }

        fn visit_f64<E>(self, _: f64) -> Result<$type, E> {
            Ok(<$type>::default())
        }
    };
}

any_value!(Name, NameVisitor, {
    no_map!(Name);
    no_numbers!(Name);

    fn visit_str<E>(self, text: &str) -> Result<Name, E> {
        Ok(if text == "[memory]" { Name::Memory } else { Name::Other(text.into()) })
    }
});

any_value!(Category, CategoryVisitor, {
    no_map!(Category);
    no_numbers!(Category);

    fn visit_str<E>(self, text: &str) -> Result<Category, E> {
        Ok(if text == "user_annotation" { Category::User } else { Category::Other })
    }
});

any_value!(Args, ArgsVisitor, {
    no_numbers!(Args);

    fn visit_str<E>(self, _: &str) -> Result<Args, E> {
        Ok(Args::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Args, A::Error> {
        let mut args = Args::default();
        while let Some(key) = map.next_key::<String>()? {
            let field = match key.as_str() {
                "Device Type" => &mut args.device_type,
                "Device Id" => &mut args.device,
                "Addr" => &mut args.addr,
                "Bytes" => &mut args.bytes,
                "Total Allocated" => &mut args.total,
                "Total Reserved" => &mut args.reserved,
                "Stream" => &mut args.stream,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *field = map.next_value()?;
        }
        Ok(args)
    }
});

any_value!(Lenient, LenientVisitor, {
    no_map!(Lenient);

    fn visit_u64<E>(self, n: u64) -> Result<Lenient, E> {
        Ok(Lenient::Int(n.into()))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Lenient, E> {
        Ok(Lenient::Int(n.into()))
    }

    fn visit_f64<E>(self, n: f64) -> Result<Lenient, E> {
        Ok(Lenient::Float(n))
    }

    fn visit_str<E>(self, text: &str) -> Result<Lenient, E> {
        let whole = super::lines::number(text).map(|n| Lenient::Int(n.into()));
        Ok(whole.or_else(|| text.parse().ok().map(Lenient::Float)).unwrap_or_default())
    }
});
