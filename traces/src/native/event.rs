//! One event: `{"alloc": "a", "size": "2MiB"}`.

use super::EVENT_FIELDS;
use super::stacks::StackRow;
use super::state::State;
use crate::quantity::{parse_bytes, parse_nanos};
use crate::suggest;
use poolsim_core::units::{PoolId, StreamId};
use poolsim_core::{Bytes, Event, EventKind, Nanos};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use std::fmt;

/// A name of an allocation. `7` and `"7"` are the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    Number(u64),
    Text(Box<str>),
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => number.fmt(f),
            Id::Text(text) => {
                text.chars().take(60).try_for_each(|c| write!(f, "{}", c.escape_debug()))
            }
        }
    }
}

/// What one event says.
#[derive(Debug)]
pub(crate) struct EventRow {
    pub kind: EventKind,
    pub id: Option<Id>,
    pub size: Option<Bytes>,
    pub stream: Option<StreamId>,
    pub pool: Option<PoolId>,
    pub at: Option<Nanos>,
    pub stack: Option<StackRow>,
}

/// A number, or a text that names one.
struct Scalar(Result<u64, String>);

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number that is not negative, or a string")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar(Ok(number)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar(Err(text.into())))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
        if value { Ok(Scalar(Ok(1))) } else { Err(E::custom("`false` says nothing; leave it out")) }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

impl Scalar {
    fn id(self) -> Id {
        match self.0 {
            Ok(number) => Id::Number(number),
            Err(text) => match text.parse::<u64>() {
                Ok(number) if number.to_string() == text => Id::Number(number),
                _ => Id::Text(text.into()),
            },
        }
    }

    fn quantity(self, parse: fn(&str) -> Result<u64, String>) -> Result<u64, String> {
        self.0.or_else(|text| parse(&text))
    }

    fn stream(self) -> Result<StreamId, String> {
        match self.0 {
            Ok(number) => match u16::try_from(number) {
                Ok(number) => Ok(StreamId(number)),
                Err(_) => Err(format!(
                    "stream {number} is above 65,535; number streams from 0 and put raw handles into `streams`"
                )),
            },
            Err(text) if text == "foreign" => Ok(StreamId::FOREIGN),
            Err(text) => Err(format!("stream `{text}` is no number; number streams from 0")),
        }
    }

    fn pool(self) -> Result<PoolId, String> {
        let number =
            self.0.map_err(|text| format!("pool `{text}` is no number; number pools from 0"))?;
        match u16::try_from(number) {
            Ok(number) if number <= Event::MAX_POOL => Ok(PoolId(number)),
            _ => Err(format!("pool {number} is above {}; number pools from 0", Event::MAX_POOL)),
        }
    }
}

/// A size in bytes, for the fields of the header.
pub(crate) struct Size(pub Bytes);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let scalar = Scalar::deserialize(deserializer)?;
        scalar.quantity(parse_bytes).map(Size).map_err(D::Error::custom)
    }
}

/// Reads one event into the trace. It is admitted within the object, so that an error has its line.
pub(crate) struct EventSeed<'a>(pub &'a mut State);

impl<'de> DeserializeSeed<'de> for EventSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for EventSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event such as {\"alloc\": \"a\", \"size\": \"2MiB\"} or {\"free\": \"a\"}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut row = Partial::default();
        while let Some(key) = map.next_key::<String>()? {
            row.field(&key, &mut map)?;
        }
        row.finish().and_then(|row| self.0.push(row)).map_err(A::Error::custom)
    }
}

#[derive(Default)]
struct Partial {
    kind: Option<EventKind>,
    id: Option<Id>,
    size: Option<Bytes>,
    stream: Option<StreamId>,
    pool: Option<PoolId>,
    at: Option<Nanos>,
    stack: Option<StackRow>,
}

impl Partial {
    fn field<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let wrong = A::Error::custom::<String>;
        let twice = match key {
            "size" => {
                let size = map.next_value::<Scalar>()?.quantity(parse_bytes).map_err(wrong)?;
                self.size.replace(size).is_some()
            }
            "t" => {
                let at = map.next_value::<Scalar>()?.quantity(parse_nanos).map_err(wrong)?;
                self.at.replace(at).is_some()
            }
            "stream" => {
                let stream = map.next_value::<Scalar>()?.stream().map_err(wrong)?;
                self.stream.replace(stream).is_some()
            }
            "pool" => {
                let pool = map.next_value::<Scalar>()?.pool().map_err(wrong)?;
                self.pool.replace(pool).is_some()
            }
            "stack" => self.stack.replace(map.next_value()?).is_some(),
            key => {
                let kind = kind_of(key).ok_or_else(|| wrong(unknown_key(key)))?;
                if let Some(other) = self.kind.replace(kind) {
                    return Err(wrong(format!("one event is both `{}` and `{key}`", other.name())));
                }
                return self.subject(kind, map.next_value::<Scalar>()?).map_err(wrong);
            }
        };
        if twice { Err(wrong(format!("`{key}` is given twice"))) } else { Ok(()) }
    }

    /// The value of the field that names the kind.
    fn subject(&mut self, kind: EventKind, value: Scalar) -> Result<(), String> {
        use EventKind::*;
        match kind {
            EmptyCache | SyncDevice => match value.0 {
                Ok(1) => Ok(()),
                _ => Err(format!("write `\"{}\": true`", kind.name())),
            },
            PoolOpen | PoolClose | PoolDrop | PoolDestroy => self
                .pool
                .replace(value.pool()?)
                .map_or(Ok(()), |_| Err("`pool` is given twice".into())),
            SyncStream => {
                let before = self.stream.replace(value.stream()?);
                before.map_or(Ok(()), |_| Err("`stream` is given twice".into()))
            }
            _ => {
                self.id = Some(value.id());
                Ok(())
            }
        }
    }

    fn finish(self) -> Result<EventRow, String> {
        let kind = self.kind.ok_or("the event does not say what happens: alloc, free, …")?;
        let Partial { id, size, stream, pool, at, stack, .. } = self;
        Ok(EventRow { kind, id, size, stream, pool, at, stack })
    }
}

/// The kind with this name.
pub(crate) fn kind_of(name: &str) -> Option<EventKind> {
    EventKind::ALL.into_iter().find(|kind| kind.name() == name)
}

fn unknown_key(key: &str) -> String {
    let known: Vec<&str> =
        EventKind::ALL.iter().map(|k| k.name()).chain(EVENT_FIELDS.iter().copied()).collect();
    suggest::unknown("event field", key, &known)
}
