//! Which options a version of PyTorch knows, and under which name it reads them.

use poolsim_core::ConfigError;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// A version of PyTorch: major and minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Torch {
    /// 2 in 2.11.
    pub major: u32,
    /// 11 in 2.11.
    pub minor: u32,
}

/// The version whose rules are simulated, and which is assumed where nothing says another.
pub const SIMULATED: Torch = Torch { major: 2, minor: 11 };

/// Since when PyTorch knows an option: the releases of the pull requests that brought them (#74213 and #80000 with 1.13, #96995
/// with 2.1, #130663 with 2.5, #161035 with 2.10, #172056 with 2.11).
const SINCE: &[(&str, Torch)] = &[
    ("max_split_size_mb", Torch { major: 1, minor: 10 }),
    ("garbage_collection_threshold", Torch { major: 1, minor: 12 }),
    ("roundup_power2_divisions", Torch { major: 1, minor: 13 }),
    ("backend", Torch { major: 2, minor: 0 }),
    ("expandable_segments", Torch { major: 2, minor: 1 }),
    ("max_non_split_rounding_mb", Torch { major: 2, minor: 6 }),
    ("per_process_memory_fraction", Torch { major: 2, minor: 10 }),
    ("large_segment_size_mb", Torch { major: 2, minor: 11 }),
];

impl Torch {
    /// Whether this version knows an option.
    pub fn knows(self, key: &str) -> bool {
        SINCE.iter().any(|(known, since)| *known == key && self >= *since)
    }

    /// The smallest `max_split_size_mb` and `max_non_split_rounding_mb` that it takes: before 2.10 they had to be above 20.
    pub fn least_split_mb(self) -> u64 {
        if self < (Torch { major: 2, minor: 10 }) { 21 } else { 20 }
    }

    /// The environment variable. PYTORCH_CUDA_ALLOC_CONF is the only one that versions up to 2.9 read for every CUDA
    /// option, and the one that 2.11 itself names in its out-of-memory message; later versions name PYTORCH_ALLOC_CONF.
    pub fn variable(self) -> &'static str {
        if self < (Torch { major: 2, minor: 12 }) {
            "PYTORCH_CUDA_ALLOC_CONF"
        } else {
            "PYTORCH_ALLOC_CONF"
        }
    }

    /// The version in a text such as `torch 2.11.0+cu130`.
    pub fn in_text(text: &str) -> Option<Torch> {
        text.split_whitespace().find_map(|word| word.parse().ok())
    }
}

impl FromStr for Torch {
    type Err = ConfigError;

    /// `2.11`, `2.11.0`, `2.11.0+cu130`.
    fn from_str(text: &str) -> Result<Torch, ConfigError> {
        let wrong = || ConfigError(format!("`{text}` is no version of PyTorch; write it as 2.11"));
        let mut parts = text.split(['.', '+']);
        let mut number = || parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong);
        let version = Torch { major: number()?, minor: number()? };
        if version < (Torch { major: 1, minor: 10 }) {
            let what = format!("PyTorch {version} has no allocator settings; they came with 1.10");
            return Err(ConfigError(what));
        }
        Ok(version)
    }
}

impl fmt::Display for Torch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_torch_calls_itself() {
        assert_eq!(Torch::in_text("torch 2.11.0+cu130"), Some(SIMULATED));
        assert_eq!("2.4".parse(), Ok(Torch { major: 2, minor: 4 }));
        for wrong in ["", "2", "two.one", "0.4.1", "1.9"] {
            assert!(wrong.parse::<Torch>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_and_the_variables_name_follow_the_version() {
        let version = |text: &str| text.parse::<Torch>().unwrap();
        assert!(!version("2.0").knows("expandable_segments"));
        assert!(version("2.1").knows("expandable_segments"));
        assert!(!version("2.10").knows("large_segment_size_mb"));
        assert!(!version("2.11").knows("no_such_option"));
        assert_eq!((version("2.9").least_split_mb(), version("2.10").least_split_mb()), (21, 20));
        assert_eq!(version("2.11").variable(), "PYTORCH_CUDA_ALLOC_CONF");
        assert_eq!(version("2.12").variable(), "PYTORCH_ALLOC_CONF");
    }
}
