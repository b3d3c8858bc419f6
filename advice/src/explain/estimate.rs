//! What would free enough memory where no setting can: estimates, computed from who holds the memory at the moment.

use super::holders::{Category, Holding};
use poolsim_core::Bytes;
use serde::Serialize;

/// A way to need less memory, with what it would have to do or would bring. An estimate: it takes what scales as it is known to
/// scale in most programs, not in this one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "way")]
pub enum Estimate {
    /// Activations are computed again instead of kept (activation checkpointing).
    Checkpointing {
        /// Bytes that activations hold at the moment.
        held_bytes: Bytes,
        /// Bytes of them that would have to go.
        bytes: Bytes,
        /// The same as a share.
        share: f64,
    },
    /// Fewer samples at once: activations and temporaries shrink with them.
    MicroBatch {
        /// What shrinks.
        held_bytes: Bytes,
        /// The largest size that would fit, as a share of the present one; `None` if none does.
        largest_share: Option<f64>,
    },
    /// Parameters, gradients and optimizer state in half as many bytes.
    HalfPrecision {
        /// Bytes that they hold.
        held_bytes: Bytes,
        /// Bytes that would be freed.
        bytes: Bytes,
        /// Whether that is enough.
        enough: bool,
    },
    /// One category moves to the host.
    Offload {
        /// Which.
        category: Category,
        /// Bytes that would be freed.
        bytes: Bytes,
        /// Whether that is enough.
        enough: bool,
    },
}

/// Estimates for `missing` bytes that have to go.
pub fn estimates(holdings: &[Holding], missing: Bytes) -> Vec<Estimate> {
    let held = |wanted: &[Category]| -> Bytes {
        let of = holdings.iter().filter(|holding| wanted.contains(&holding.category));
        of.map(|holding| holding.bytes).sum()
    };
    let mut estimates = Vec::new();
    let activations = held(&[Category::Activations]);
    if activations > 0 {
        let share = missing as f64 / activations as f64;
        estimates.push(Estimate::Checkpointing { held_bytes: activations, bytes: missing, share });
    }
    let scaling = held(&[Category::Activations, Category::Temporaries, Category::Passing]);
    if scaling > 0 {
        let largest_share =
            (scaling > missing).then(|| (scaling - missing) as f64 / scaling as f64);
        estimates.push(Estimate::MicroBatch { held_bytes: scaling, largest_share });
    }
    let state = held(&[Category::Parameters, Category::Gradients, Category::OptimizerState]);
    if state > 0 {
        let bytes = state / 2;
        let enough = bytes >= missing;
        estimates.push(Estimate::HalfPrecision { held_bytes: state, bytes, enough });
    }
    let movable = [Category::OptimizerState, Category::Parameters, Category::Activations];
    for category in movable {
        let bytes = held(&[category]);
        if bytes > 0 {
            estimates.push(Estimate::Offload { category, bytes, enough: bytes >= missing });
        }
    }
    estimates
}
