//! `docs/policies.md` says what the registry says, and `docs/adding-a-policy.md` shows the example that the battery runs.
//! `UPDATE_GOLDEN=1` writes the first anew.

use poolsim_policies::{Effect, ParamDef, Params, PolicyDef, Registry, compose};
use std::fmt::Write;

const HEAD: &str = "# Policies\n\n\
    Written from the policies' own tables by `UPDATE_GOLDEN=1 cargo test -p poolsim-policies --test page`; \
    `poolsim policies NAME` says the same.\n";

fn page() -> String {
    let mut page = String::from(HEAD);
    for def in Registry::builtin().defs() {
        section(&mut page, def).expect("writing into a string");
    }
    page.push_str("\n### Stages of `compose`\n\n| kind | stage | |\n|---|---|---|\n");
    for (kind, name, summary) in compose::stages() {
        page.push_str(&format!("| `{kind}` | `{name}` | {summary} |\n"));
    }
    page
}

fn section(out: &mut String, def: &PolicyDef) -> std::fmt::Result {
    write!(out, "\n## `{}`\n\n{}.\n", def.name, def.summary)?;
    if !def.aliases.is_empty() {
        write!(out, "\nAlso called `{}`.\n", def.aliases.join("`, `"))?;
    }
    let version = (def.version)(&Params::defaults(def.params));
    if !version.is_empty() {
        write!(out, "\nReproduces {version}.\n")?;
    }
    writeln!(out)?;
    def.rules.lines().try_for_each(|rule| writeln!(out, "- {rule}"))?;
    write!(out, "\nSource: {}.\n\nChecked against: {}.\n", def.source, def.checked_against)?;
    if !def.presets.is_empty() {
        write!(out, "\n| preset | means | |\n|---|---|---|\n")?;
        for p in def.presets {
            writeln!(out, "| `{}` | `{},{}` | {} |", p.name, def.name, p.items, p.summary)?;
        }
    }
    if !def.params.is_empty() {
        write!(out, "\n| parameter | default | allowed | |\n|---|---|---|---|\n")?;
        def.params.iter().try_for_each(|p| row(out, p))?;
    }
    Ok(())
}

fn row(out: &mut String, param: &ParamDef) -> std::fmt::Result {
    let effect = match param.effect {
        Effect::NoEffect(reason) => format!(" Without effect: {reason}."),
        Effect::Simulated | Effect::Selects(_) => String::new(),
    };
    let (key, default, doc) = (param.key, param.default, param.doc);
    writeln!(out, "| `{key}` | {default} | {} | {doc}{effect} |", param.kind.allowed())
}

#[test]
fn the_page_is_what_the_registry_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/policies.md");
    let want = page();
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|v| !v.is_empty()) {
        std::fs::write(path, &want).expect("docs/policies.md can be written");
    }
    let have = std::fs::read_to_string(path).unwrap_or_default();
    assert!(have == want, "docs/policies.md is out of date; run this test with UPDATE_GOLDEN=1");
}

#[test]
fn the_example_in_the_docs_is_the_one_that_is_tested() {
    let root = env!("CARGO_MANIFEST_DIR");
    let read =
        |path: String| std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let page = read(format!("{root}/../docs/adding-a-policy.md"));
    let file = read(format!("{root}/examples/powers.rs"));
    let (example, _) = file.split_once("// The file ends here").expect("the marker");
    let (_, after) = page.split_once("```rust\n").expect("a block of Rust");
    let (shown, _) = after.split_once("```").expect("the end of the block");
    let inside = example.replace("poolsim_policies::", "crate::");
    assert_eq!(shown, inside, "copy the example into docs/adding-a-policy.md");
    assert!(shown.lines().count() <= 45, "the example has grown long");
}
