//! `poolsim new-policy`: the file that a new policy starts from.

use crate::args::NewPolicyArgs;
use crate::output::{Ending, Out, Usage};
use anyhow::Context;
use poolsim_policies::scaffold::{Home, Scaffold, scaffold};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes the file and says what else is to be done.
pub fn run(args: &NewPolicyArgs, out: &mut Out) -> anyhow::Result<Ending> {
    let home = if args.outside { Home::Outside } else { Home::Inside };
    let made = scaffold(&args.name, home).map_err(|error| Usage(error.to_string()))?;
    let folder = match &args.dir {
        Some(folder) => folder.clone(),
        None if args.outside => PathBuf::from("."),
        None => sources()?,
    };
    let path = folder.join(format!("{}.rs", made.module));
    let beside = folder.join(&made.module);
    if beside.exists() {
        let (path, beside) = (path.display(), beside.display());
        anyhow::bail!("{path}: the module {beside} is there already; choose another name");
    }
    write_new(&path, &made.text)?;
    writeln!(out, "{}: a working policy to change: best fit on powers of two.", path.display())?;
    next_steps(args, &made, out)?;
    Ok(Ending::Fine)
}

/// Never replaces a file.
fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.with_context(|| format!("{}: cannot be made anew", path.display()))?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("{}: cannot be written", path.display()))
}

/// `policies/src` of the clone that holds the current folder.
fn sources() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("the current folder cannot be read")?;
    let roots = here.ancestors().map(|root| root.join("policies/src"));
    let found = roots.into_iter().find(|folder| folder.join("registry.rs").is_file());
    found.ok_or_else(|| {
        Usage(format!(
            "{} is not in a clone of poolsim; go to one, or say --outside for a policy in a crate of your own",
            here.display()
        ))
        .into()
    })
}

fn next_steps(args: &NewPolicyArgs, made: &Scaffold, out: &mut Out) -> anyhow::Result<()> {
    let (name, module) = (&args.name, &made.module);
    if args.outside {
        writeln!(out, "\nRegister it in your program, which depends on poolsim-policies:\n")?;
        writeln!(out, "  mod {module};")?;
        writeln!(
            out,
            "  let registry = poolsim_policies::Registry::builtin().with(&{module}::DEF);"
        )?;
    } else {
        writeln!(out, "\nTwo lines make it known:\n")?;
        writeln!(out, "  policies/src/lib.rs       pub mod {module};")?;
        writeln!(out, "  policies/src/registry.rs  {module}, in the table policies! {{ … }}")?;
        writeln!(out, "\nThen\n")?;
        writeln!(out, "  cargo run --release -- replay TRACE --policy {name}")?;
        writeln!(out, "  cargo test -p poolsim-policies")?;
    }
    writeln!(
        out,
        "\nPut your rules in, and say them in `summary`, `rules`, `source` and `checked_against`."
    )?;
    writeln!(out, "docs/adding-a-policy.md explains each field and what the tests ask.")?;
    Ok(())
}
