//! What each kind of parameter accepts, refuses and prints.

use super::*;

const fn def(key: &'static str, kind: ParamKind, default: ParamDefault) -> ParamDef {
    ParamDef { key, kind, default, unit: "", doc: "for tests", effect: Effect::Simulated }
}

static DEFS: &[ParamDef] = &[
    def("flag", ParamKind::Bool, ParamDefault::Is("False")),
    def("count", ParamKind::UInt { min: 1, max: 8 }, ParamDefault::Is("2")),
    def(
        "share",
        ParamKind::Float { min: Bound::Excluded(0.0), max: Bound::Excluded(1.0) },
        ParamDefault::Unset("off"),
    ),
    def("limit_mb", ParamKind::MiB { min: 20 }, ParamDefault::Unset("unlimited")),
    def("quantum", ParamKind::Bytes { min: 256, multiple_of: 256 }, ParamDefault::Is("512")),
    def("kind", ParamKind::Choice(&["best", "first"]), ParamDefault::Is("best")),
    def("cuts", ParamKind::Divisions, ParamDefault::Is("1")),
];

fn resolve(items: &str) -> Result<Params, ConfigError> {
    Params::resolve("p", DEFS, &format!("p,{items}").parse().unwrap())
}

fn canonical(items: &str) -> String {
    let spec = PolicySpec { name: "p".into(), items: resolve(items).unwrap().items() };
    spec.to_string()
}

#[test]
fn canonical_items_are_ordered_and_without_defaults() {
    assert_eq!(canonical(""), "p");
    assert_eq!(canonical("flag:False,count:2,quantum:512B,kind:best,cuts:1"), "p");
    assert_eq!(
        canonical("cuts:[1:2,>:4],quantum:2097152,limit_mb:128,share:.50,flag:True"),
        "p,flag:True,share:0.5,limit_mb:128,quantum:2MiB,cuts:[1:2,>:4]"
    );
}

#[test]
fn values_come_back_typed() {
    let p = resolve("limit_mb:128,share:0.25,quantum:1KiB,count:8,kind:first").unwrap();
    assert_eq!(p.bytes("limit_mb"), 128 << 20);
    assert_eq!(p.bytes_if_set("limit_mb"), Some(128 << 20));
    assert_eq!(p.float_if_set("share"), Some(0.25));
    assert_eq!((p.bytes("quantum"), p.uint("count"), p.choice("kind")), (1024, 8, "first"));
    assert_eq!((p.bool("flag"), p.divisions("cuts")), (false, Divisions::All(1)));
    assert!(p.given("count") && !p.given("flag"));
    let p = resolve("").unwrap();
    assert_eq!((p.bytes_if_set("limit_mb"), p.float_if_set("share")), (None, None));
}

#[test]
fn impossible_values_are_refused_with_what_is_allowed() {
    for bad in [
        "flag:true",
        "flag:1",
        "flag:[1:2]",
        "count:0",
        "count:9",
        "count:-1",
        "count:+1",
        "count:1.0",
        "count:99999999999999999999",
        "share:0",
        "share:1",
        "share:1.0",
        "share:nan",
        "share:inf",
        "share:-0.5",
        "share:1e400",
        "share:x",
        "limit_mb:19",
        "limit_mb:128MB",
        "limit_mb:17592186044416",
        "quantum:128",
        "quantum:300",
        "quantum:2MB",
        "quantum:99999999999GiB",
        "kind:Best",
        "cuts:3",
    ] {
        let error = resolve(bad).unwrap_err().to_string();
        let key = bad.split(':').next().unwrap();
        assert!(
            error.starts_with(&format!("`p`: `{bad}` is not possible; allowed is ")),
            "{error}"
        );
        let kind = &DEFS.iter().find(|d| d.key == key).unwrap().kind;
        assert!(error.ends_with(&kind.allowed()), "{error}");
    }
}

#[test]
fn unknown_keys_name_the_nearest() {
    let error = resolve("limit:20").unwrap_err().to_string();
    assert!(error.starts_with("`p` has no parameter `limit`; nearest: limit_mb, "), "{error}");
    let none = Params::resolve("q", &[], &"q,a:1".parse().unwrap()).unwrap_err();
    assert_eq!(none.to_string(), "`q` has no parameters, so it has no `a`");
}
