//! Power-of-two divisions: how finely a size class between two powers of two is cut, by size.

use crate::spec::SpecValue;
use std::fmt;

/// Size buckets of a [`Divisions`]: below 2 MiB, then one for each power of two in MiB, the last open-ended.
pub const BUCKETS: usize = 16;

/// A setting in the syntax of PyTorch's `roundup_power2_divisions`, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Divisions {
    /// The same number of divisions for every size.
    All(u64),
    /// `[MiB:divisions,…,>:divisions]`.
    List {
        /// Power-of-two keys in MiB with their divisions, in the order written.
        named: Vec<(u64, u64)>,
        /// The divisions of `>`, the sizes after the last named one.
        rest: Option<u64>,
    },
}

impl Divisions {
    /// What the syntax allows, for messages.
    pub(crate) const ALLOWED: &'static str = "a power of two, or a list [MiB:divisions,...,>:divisions] whose keys are \
         powers of two and whose divisions are 0 or powers of two, with > last";

    pub(crate) fn parse(value: &SpecValue) -> Option<Divisions> {
        match value {
            SpecValue::Atom(text) => {
                whole(text).filter(|n| n.is_power_of_two()).map(Divisions::All)
            }
            SpecValue::List(pairs) => {
                let mut named = Vec::new();
                let mut rest = None;
                for (key, value) in pairs {
                    let divisions = whole(value).filter(|&v| v == 0 || v.is_power_of_two())?;
                    if rest.is_some() {
                        return None;
                    } else if key == ">" {
                        rest = Some(divisions);
                    } else {
                        named.push((whole(key).filter(|k| k.is_power_of_two())?, divisions));
                    }
                }
                Some(Divisions::List { named, rest })
            }
        }
    }

    /// Divisions by bucket, by the rules of PyTorch 2.10 and later: the first named entry also fills every
    /// smaller bucket, buckets between named ones stay 0, and `>` fills from the bucket after the last
    /// named one. 0 and 1 mean that sizes are not rounded to a power of two.
    pub fn buckets(&self) -> [u64; BUCKETS] {
        let mut buckets = [0; BUCKETS];
        match self {
            Divisions::All(n) => buckets = [*n; BUCKETS],
            Divisions::List { named, rest } => {
                let mut last = 0;
                for (i, &(mib, divisions)) in named.iter().enumerate() {
                    last = (mib.ilog2() as usize).min(BUCKETS - 1);
                    if i == 0 {
                        buckets[..last].fill(divisions);
                    }
                    buckets[last] = divisions;
                }
                if let Some(divisions) = rest {
                    buckets[last + 1..].fill(*divisions);
                }
            }
        }
        buckets
    }
}

fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Divisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SpecValue::from(self).fmt(f)
    }
}

impl From<&Divisions> for SpecValue {
    fn from(divisions: &Divisions) -> SpecValue {
        match divisions {
            Divisions::All(n) => SpecValue::Atom(n.to_string()),
            Divisions::List { named, rest } => SpecValue::List(
                named
                    .iter()
                    .map(|(mib, n)| (mib.to_string(), n.to_string()))
                    .chain(rest.map(|n| (">".into(), n.to_string())))
                    .collect(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(list: &str) -> Option<[u64; BUCKETS]> {
        let spec: crate::PolicySpec = format!("pytorch,k:{list}").parse().unwrap();
        Divisions::parse(spec.get("k").unwrap()).map(|d| d.buckets())
    }

    /// The worked examples of PyTorch's documentation.
    #[test]
    fn lists_fill_buckets_as_pytorch_does() {
        let b = buckets("[256:1,512:2,1024:4,>:8]").unwrap();
        assert_eq!(b, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]);
        let b = buckets("[64:8,256:4,1024:4,>:1]").unwrap();
        assert_eq!(b, [8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 4, 1, 1, 1, 1, 1]);
        assert_eq!(buckets("[>:4]").unwrap()[..3], [0, 4, 4]);
        assert_eq!(buckets("4").unwrap(), [4; 16]);
        assert_eq!(buckets("[1048576:2,>:4]").unwrap(), [2; 16]);
    }

    #[test]
    fn what_is_not_a_power_of_two_is_refused() {
        for bad in ["0", "3", "x", "+4", "[3:1]", "[256:3]", "[0:1]", "[>:1,256:2]", "[256:-1]"] {
            assert_eq!(buckets(bad), None, "{bad}");
        }
    }
}
