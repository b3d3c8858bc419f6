//! Are the tables sane? Loops over every registered policy, so a new one is held to the same.

use poolsim_core::DeviceCaps;
use poolsim_core::units::{GIB, MIB};
use poolsim_policies::{
    BuildEnv, Effect, ParamDefault, ParamKind, Params, PolicySpec, Registry, Resolved, SpecValue,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;

/// How a policy's file defines it.
const DEFINITION: &str = "\npub static DEF: PolicyDef";

fn env() -> BuildEnv {
    let caps = DeviceCaps {
        name: "test".into(),
        total: 8 * GIB,
        granule: 2 * MIB,
        range_align: 2 * MIB,
        paged: true,
    };
    BuildEnv { caps, memory_fraction: None }
}

fn resolve(text: &str) -> Resolved {
    Registry::builtin().resolve(&text.parse().unwrap()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn refusal(text: &str) -> String {
    let registry = Registry::builtin();
    let refused = registry.resolve(&text.parse().unwrap()).and_then(|r| r.build(&env()));
    refused.map(|b| b.spec).expect_err(text).to_string()
}

/// A module is compiled without a row in the table, so nothing else would notice.
#[test]
fn every_definition_in_the_sources_has_a_row() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut defined = Vec::new();
    let mut folders = vec![sources];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read_to_string(&path).is_ok_and(|text| text.contains(DEFINITION)) {
                defined.push(path);
            }
        }
    }
    let rows = Registry::builtin().defs().len();
    assert_eq!(defined.len(), rows, "policies! in registry.rs has {rows} rows for {defined:#?}");
}

#[test]
fn names_are_unique_and_plain() {
    let mut seen = BTreeSet::new();
    for name in Registry::builtin().names() {
        assert!(seen.insert(name), "`{name}` is taken twice");
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(
            name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(plain),
            "{name}"
        );
    }
}

#[test]
fn every_policy_and_parameter_is_documented() {
    for def in Registry::builtin().defs() {
        for text in [def.summary, def.rules, def.source, def.checked_against] {
            assert!(!text.trim().is_empty(), "`{}` lacks a text", def.name);
        }
        assert!(!def.summary.contains('\n') && !def.summary.ends_with('.'), "{}", def.summary);
        assert!(!def.rules.contains("  "), "`{}`: stray blanks in the rules", def.name);
        let mut keys = BTreeSet::new();
        for param in def.params {
            assert!(keys.insert(param.key), "`{}` declares `{}` twice", def.name, param.key);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.".contains(c);
            assert!(param.key.chars().all(plain), "{}", param.key);
            assert!(param.doc.ends_with('.'), "`{}`: {}", param.key, param.doc);
            if let Effect::NoEffect(reason) = param.effect {
                assert!(!reason.is_empty(), "`{}` has no reason to be without effect", param.key);
            }
            if let ParamDefault::Unset(meaning) = param.default {
                assert!(!meaning.is_empty(), "`{}` does not say what unset means", param.key);
            }
        }
        for preset in def.presets {
            assert!(!preset.summary.is_empty(), "{}", preset.name);
        }
    }
}

#[test]
fn defaults_build_and_are_canonical() {
    for def in Registry::builtin().defs() {
        let built = Registry::builtin().build(&PolicySpec::named(def.name), &env()).unwrap();
        assert_eq!(built.spec.to_string(), def.name);
        assert_eq!(built.warnings, [], "`{}` warns about its own defaults", def.name);
        for name in def.aliases.iter().copied().chain(def.presets.iter().map(|p| p.name)) {
            assert_eq!(resolve(name).def.name, def.name);
        }
    }
}

#[test]
fn presets_are_written_out() {
    assert_eq!(resolve("expandable").spec().to_string(), "pytorch,expandable_segments:True");
    assert_eq!(
        resolve("expandable,max_split_size_mb:128").spec().to_string(),
        "pytorch,expandable_segments:True,max_split_size_mb:128"
    );
    assert_eq!(resolve("native").spec().to_string(), "pytorch");
    assert!(refusal("expandable,expandable_segments:False").contains("is set by the preset"));
}

#[test]
fn wrong_specs_are_refused_with_the_nearest_names() {
    for (spec, words) in [
        ("best-fot", "there is no policy `best-fot`; nearest: best-fit"),
        (
            "max_split_size:128",
            "`pytorch` has no parameter `max_split_size`; nearest: max_split_size_mb",
        ),
        (
            "expandable_segments:true",
            "`expandable_segments:true` is not possible; allowed is True or False",
        ),
        (
            "compose,place:bst",
            "`place:bst` is not possible; allowed is one of best, first, worst, bins",
        ),
        (
            "best-fit,quantum:100",
            "allowed is bytes such as 512, 64KiB, 2MiB or 1GiB, at least 256, a multiple of 256",
        ),
        ("compose,reclaim:lru,reclaim.threshold:1.5", "allowed is a number, above 0, below 1"),
    ] {
        assert!(refusal(spec).contains(words), "{spec}: {}", refusal(spec));
    }
    let mut env = env();
    env.memory_fraction = Some(1.5);
    assert!(resolve("bump").build(&env).is_err());
}

#[test]
fn parameters_of_stages_that_were_not_chosen_are_warned_about() {
    let warnings = |spec: &str| -> Vec<String> {
        resolve(spec).warnings(&env()).into_iter().map(|w| w.0).collect()
    };
    assert_eq!(
        warnings("compose,grow.factor:3,reclaim.keep:1GiB,round.quantum:1KiB"),
        [
            "`grow.factor` is without effect: `grow` is `exact`",
            "`reclaim.keep` is without effect: `reclaim` is `all`",
        ]
    );
    assert_eq!(warnings("compose,grow:double,grow.factor:3"), [""; 0]);
}

/// A value that `kind` allows.
fn value(kind: &'static ParamKind) -> BoxedStrategy<SpecValue> {
    let atom = |text: String| SpecValue::Atom(text);
    match *kind {
        ParamKind::Bool => prop_oneof!["True", "False"].prop_map(atom).boxed(),
        ParamKind::UInt { min, max } => (min..=max).prop_map(move |n| atom(n.to_string())).boxed(),
        ParamKind::Float { .. } => (0.0..4.0f64).prop_map(move |x| atom(x.to_string())).boxed(),
        ParamKind::MiB { min } => (min..1 << 20).prop_map(move |n| atom(n.to_string())).boxed(),
        ParamKind::Bytes { min, multiple_of: step } => {
            (min.div_ceil(step)..1 << 20).prop_map(move |n| atom((n * step).to_string())).boxed()
        }
        ParamKind::Choice(words) => {
            prop::sample::select(words).prop_map(move |w| atom(w.into())).boxed()
        }
        ParamKind::Divisions => prop::collection::btree_map(0u32..12, 0u32..5, 1..4)
            .prop_map(|m| {
                m.into_iter().map(|(k, v)| ((1u64 << k).to_string(), (1u64 << v).to_string()))
            })
            .prop_map(|m| SpecValue::List(m.collect()))
            .boxed(),
    }
}

proptest! {
    /// Canonical specs are a fixed point: resolving what was printed prints the same.
    #[test]
    fn canonical_specs_round_trip(
        (policy, values) in prop::sample::select(Registry::builtin().defs().to_vec()).prop_flat_map(|def| {
            let values: Vec<_> = def.params.iter().map(|p| prop::option::of(value(&p.kind))).collect();
            (Just(def), values)
        })
    ) {
        let mut spec = PolicySpec::named(policy.name);
        for (param, value) in policy.params.iter().zip(values) {
            let redirects = matches!(param.effect, Effect::Selects(_));
            if let Some(value) = value.filter(|v| !redirects && param.kind.parse(v).is_some()) {
                spec.set(param.key, value);
            }
        }
        let params = Params::resolve(policy.name, policy.params, &spec).unwrap();
        let once = Registry::builtin().resolve(&spec).unwrap().spec();
        let twice = Registry::builtin().resolve(&once.to_string().parse().unwrap()).unwrap();
        prop_assert_eq!(&once, &twice.spec());
        for ((_, a, _), (_, b, _)) in params.iter().zip(twice.params.iter()) {
            prop_assert_eq!(a, b);
        }
    }

    #[test]
    fn no_spec_makes_the_registry_panic(text in "(pytorch|compose|best-fit|bump)?(,[a-z_.]{1,12}:[0-9A-Za-z]{1,5}){0,3}") {
        if let Ok(spec) = text.parse::<PolicySpec>() {
            let _ = Registry::builtin().build(&spec, &env());
        }
    }
}
