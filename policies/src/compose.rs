//! Free composition: any rounding with any placement, growth and reclaim.

use crate::caching::Caching;
use crate::params::{Effect, ParamDef, ParamDefault, ParamKind, Params};
use crate::registry::{BuildEnv, OomRule, PolicyDef, Warning, no_version};
use crate::stage::growth::GROWTHS;
use crate::stage::placement::PLACEMENTS;
use crate::stage::reclaim::RECLAIMS;
use crate::stage::rounding::ROUNDINGS;
use crate::stage::{StageDef, collect_params, find, names, param_count};

const fn choice(key: &'static str, names: &'static [&'static str], doc: &'static str) -> ParamDef {
    ParamDef {
        key,
        kind: ParamKind::Choice(names),
        default: ParamDefault::Is(names[0]),
        unit: "",
        doc,
        effect: Effect::Simulated,
    }
}

static ROUND_NAMES: [&str; ROUNDINGS.len()] = names(ROUNDINGS);
static PLACE_NAMES: [&str; PLACEMENTS.len()] = names(PLACEMENTS);
static GROW_NAMES: [&str; GROWTHS.len()] = names(GROWTHS);
static RECLAIM_NAMES: [&str; RECLAIMS.len()] = names(RECLAIMS);

const ROUND: ParamDef = choice("round", &ROUND_NAMES, "How sizes are rounded.");
const PLACE: ParamDef = choice("place", &PLACE_NAMES, "Which free block serves a request.");
const GROW: ParamDef = choice("grow", &GROW_NAMES, "How much is taken from the device.");
const RECLAIM: ParamDef = choice("reclaim", &RECLAIM_NAMES, "What is given back, and when.");

const COUNT: usize = 4
    + param_count(ROUNDINGS)
    + param_count(PLACEMENTS)
    + param_count(GROWTHS)
    + param_count(RECLAIMS);

static PARAMS: [ParamDef; COUNT] = {
    let mut all = [ROUND; COUNT];
    let at = collect_params(ROUNDINGS, &mut all, 1);
    all[at] = PLACE;
    let at = collect_params(PLACEMENTS, &mut all, at + 1);
    all[at] = GROW;
    let at = collect_params(GROWTHS, &mut all, at + 1);
    all[at] = RECLAIM;
    collect_params(RECLAIMS, &mut all, at + 1);
    all
};

/// `compose`.
pub static DEF: PolicyDef = PolicyDef {
    name: "compose",
    aliases: &[],
    presets: &[],
    summary: "A caching allocator composed of stages: round, place, grow, reclaim",
    rules: "A request is rounded by `round` and served by the free block of its stream and pool that `place` chooses; \
            what is left of the block becomes a free block.\n\
            If no block serves, `grow` takes memory from the device.\n\
            If the device is full, `reclaim` gives idle ranges back and growth is tried again.\n\
            A freed block merges with its free neighbours; one that other streams used waits for them.",
    source: "the project's own skeleton; each stage says where it comes from",
    checked_against: "naive judges of heap and index, and the conformance battery",
    params: &PARAMS,
    refuses: &[OomRule::DeviceLacks],
    version: no_version,
    check,
    build: |p, env| {
        let round = (find(ROUNDINGS, p.choice(ROUND.key)).build)(p);
        let place = (find(PLACEMENTS, p.choice(PLACE.key)).build)(p);
        let grow = (find(GROWTHS, p.choice(GROW.key)).build)(p);
        let reclaim = (find(RECLAIMS, p.choice(RECLAIM.key)).build)(p);
        Ok(Box::new(Caching::new(round, place, grow, reclaim, env)))
    },
};

/// Every stage: its kind (the parameter that chooses it), its name and its summary.
pub fn stages() -> Vec<(&'static str, &'static str, &'static str)> {
    fn rows<T: ?Sized>(
        kind: ParamDef,
        table: &'static [StageDef<T>],
    ) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
        table.iter().map(move |s| (kind.key, s.name, s.summary))
    }
    rows(ROUND, ROUNDINGS)
        .chain(rows(PLACE, PLACEMENTS))
        .chain(rows(GROW, GROWTHS))
        .chain(rows(RECLAIM, RECLAIMS))
        .collect()
}

/// Parameters of stages that were not chosen do nothing.
fn check(params: &Params, _: &BuildEnv) -> Vec<Warning> {
    let used: [(&ParamDef, &[ParamDef]); 4] = [
        (&ROUND, find(ROUNDINGS, params.choice(ROUND.key)).params),
        (&PLACE, find(PLACEMENTS, params.choice(PLACE.key)).params),
        (&GROW, find(GROWTHS, params.choice(GROW.key)).params),
        (&RECLAIM, find(RECLAIMS, params.choice(RECLAIM.key)).params),
    ];
    let mut warnings = Vec::new();
    for (def, _, _) in params.iter().filter(|(_, _, given)| *given) {
        let Some((kind, _)) = def.key.split_once('.') else { continue };
        let of_kind = used.iter().find(|(d, _)| d.key == kind);
        let (stage, own) = of_kind.expect("a stage's keys start with its kind");
        if !own.iter().any(|p| p.key == def.key) {
            warnings.push(Warning(format!(
                "`{}` is without effect: `{kind}` is `{}`",
                def.key,
                params.choice(stage.key)
            )));
        }
    }
    warnings
}
