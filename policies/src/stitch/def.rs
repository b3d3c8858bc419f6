//! Name, rules and parameters of `stitch`.

use super::{Settings, Stitch, When};
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind};
use crate::registry::{OomRule, PolicyDef, no_version, no_warnings};
use poolsim_core::ConfigError;
use poolsim_core::units::MIB;

const fn bytes(key: &'static str, unit: u64, default: &'static str, doc: &'static str) -> ParamDef {
    ParamDef {
        key,
        kind: ParamKind::Bytes { min: unit, multiple_of: unit },
        default: ParamDefault::Is(default),
        unit: "bytes",
        doc,
        effect: Effect::Simulated,
    }
}

/// `stitch`.
pub static DEF: PolicyDef = PolicyDef {
    name: "stitch",
    aliases: &[],
    presets: &[],
    summary: "Maps scattered free pages together into one range before it takes new memory, as GMLake does",
    rules: "A request of at least `page` is large, and rounded up to pages. Its pages are created for its stream and pool and mapped \
            where they are at home; free neighbours there are one stretch.\n\
            It gets, the first that there is: a free stretch of exactly its size; a kept stitched range of exactly its size whose pages \
            are all free; the front of the smallest larger stretch.\n\
            Otherwise (`when:always`) the free stretches of at least `least`, the largest first, are stitched: mapped one after the other \
            into a new range, with new pages for what they lack. With `when:full` that happens only once the device is full.\n\
            When a stitched block is freed, its pages are free at home and its range stays mapped. If all stitched ranges together are \
            larger than `keep`, those not in use are unmapped, the least recently used first.\n\
            If the device is full: pending frees are waited for, free pages of other streams and pools go back, then those of its own; \
            stitched ranges over them are unmapped first.\n\
            Smaller requests are served by best fit on multiples of 512 bytes in ranges of 2 MiB; by a free page if the device is full.",
    source: "C. Guo et al., GMLake: Efficient and Transparent GPU Memory Defragmentation for Large-scale DNN Training with Virtual Memory \
             Stitching, ASPLOS 2024, arXiv:2401.08156, and the settings that its repository documents: `least` is its fragLimit (512 MiB \
             there), `when` its defragLevel, `keep` its autoGC (1000 GB there). There, a stitched range up to reuseLimit times \
             too large may serve as well, and blocks are split but not merged again; here neither",
    checked_against: "a device that allows no page to be lost or mapped wrongly, and naive judges of the heap",
    params: &[
        bytes("least", 2 * MIB, "32MiB", "The smallest stretch of free pages that is stitched."),
        ParamDef {
            key: "when",
            kind: ParamKind::Choice(&["always", "full"]),
            default: ParamDefault::Is("always"),
            unit: "",
            doc: "Whether free pages are stitched before new memory is taken, or when the device is full.",
            effect: Effect::Simulated,
        },
        bytes("keep", 2 * MIB, "1024GiB", "Addresses of stitched ranges that may be mapped."),
        bytes("page", 2 * MIB, "2MiB", "Bytes of a page."),
    ],
    refuses: &[OomRule::CacheReleased, OomRule::DeviceLacks],
    version: no_version,
    check: no_warnings,
    build: |p, env| {
        let page = p.bytes("page");
        if !env.caps.paged || !page.is_multiple_of(env.caps.granule) {
            return Err(ConfigError(format!(
                "`stitch` needs a device that maps pages of {page} bytes; {} maps {}",
                env.caps.name,
                if env.caps.paged {
                    format!("multiples of {}", env.caps.granule)
                } else {
                    "none".into()
                }
            )));
        }
        let when = if p.choice("when") == "full" { When::Full } else { When::Always };
        let settings = Settings { page, least: p.bytes("least"), keep: p.bytes("keep"), when };
        Ok(Box::new(Stitch::new(settings, env)))
    },
};
