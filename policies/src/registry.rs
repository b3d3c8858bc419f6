//! The one list of policies, and how a spec becomes a policy.

use crate::nearest::hint;
use crate::params::{Effect, ParamDef, Params};
use crate::spec::{PolicySpec, SpecValue};
use poolsim_core::{ConfigError, DeviceCaps, Policy};
use std::fmt;

/// One policy: a named set of rules. `docs/adding-a-policy.md` shows how to add one.
#[derive(Debug)]
pub struct PolicyDef {
    /// Its name in specs: lower-case letters, digits and `-`.
    pub name: &'static str,
    /// Further names for exactly the same.
    pub aliases: &'static [&'static str],
    /// Named settings of this policy.
    pub presets: &'static [Preset],
    /// What it is, in one line.
    pub summary: &'static str,
    /// Its rules in short, a rule a line.
    pub rules: &'static str,
    /// Where the rules come from.
    pub source: &'static str,
    /// What it was checked against.
    pub checked_against: &'static str,
    /// Its parameters, in canonical order.
    pub params: &'static [ParamDef],
    /// What holds whenever it refuses a request for want of device memory.
    pub refuses: &'static [OomRule],
    /// The version of the allocator that it reproduces (`pytorch 2.11`); empty if it reproduces none.
    pub version: fn(&Params) -> String,
    /// Settings that do nothing or do harm as combined.
    pub check: fn(&Params, &BuildEnv) -> Vec<Warning>,
    /// Makes one. An error is for values that contradict each other or the device.
    pub build: Build,
}

/// What makes a policy of its parameters.
pub type Build = fn(&Params, &BuildEnv) -> Result<Box<dyn Policy>, ConfigError>;

/// A named setting of a policy: `NAME` means `policy,items`.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name in specs.
    pub name: &'static str,
    /// The items that it stands for, as a spec writes them.
    pub items: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
}

/// A promise about refusals ([`poolsim_core::OomCause::DeviceFull`]); the conformance battery holds a policy to those that
/// it declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OomRule {
    /// No range without a block in use is left, but for ranges of private pools whose owner is alive.
    CacheReleased,
    /// No free block of the same stream and pool has the rounded size.
    NothingFits,
    /// The device has less free memory than the rounded size, in whole granules.
    DeviceLacks,
    /// The device has less free memory than a page of 32 MiB.
    PageLacks,
    /// A memory fraction limits the bytes that the program holds as requested, not the bytes held from the device.
    FractionOfRequests,
}

/// What a policy may know when it is made.
#[derive(Clone, Debug)]
pub struct BuildEnv {
    /// The device that it will run on.
    pub caps: DeviceCaps,
    /// The share of device memory that the process may take, where the job sets one; `None` means all.
    pub memory_fraction: Option<f64>,
}

/// Something that a user should know about the settings, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning(pub String);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A spec that is understood: a policy and its parameters.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The policy.
    pub def: &'static PolicyDef,
    /// Its parameters.
    pub params: Params,
    /// What was dropped on the way.
    notes: Vec<Warning>,
}

impl Resolved {
    /// The canonical spec: the policy's own name, keys in declared order, defaults omitted.
    pub fn spec(&self) -> PolicySpec {
        PolicySpec { name: self.def.name.into(), items: self.params.items() }
    }

    /// What the user should know: options without effect, and what the policy itself has to say.
    pub fn warnings(&self, env: &BuildEnv) -> Vec<Warning> {
        let idle = self.params.iter().filter_map(|(def, _, given)| match def.effect {
            Effect::NoEffect(reason) if given => {
                Some(Warning(format!("`{}` is without effect: {reason}", def.key)))
            }
            _ => None,
        });
        let own = (self.def.check)(&self.params, env);
        self.notes.iter().cloned().chain(idle).chain(own).collect()
    }

    /// Makes the policy.
    pub fn build(&self, env: &BuildEnv) -> Result<Built, ConfigError> {
        if let Some(x) = env.memory_fraction.filter(|x| !(0.0..=1.0).contains(x)) {
            return Err(ConfigError(format!(
                "a memory fraction of {x} is not possible; allowed is a number from 0 to 1"
            )));
        }
        Ok(Built {
            policy: (self.def.build)(&self.params, env)?,
            spec: self.spec(),
            version: (self.def.version)(&self.params),
            warnings: self.warnings(env),
        })
    }
}

/// A policy, ready to run, with what results say of it.
pub struct Built {
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// Its canonical spec.
    pub spec: PolicySpec,
    /// The version of the allocator that it reproduces; empty if none.
    pub version: String,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

macro_rules! policies {
    ($($module:ident),* $(,)?) => {
        /// The policies that poolsim comes with.
        pub static POLICIES: &[&PolicyDef] = &[$(&crate::$module::DEF),*];
    };
}

policies! {
    pytorch, cuda_async, cuda_malloc, best_fit, pow2, lru, tlsf, buddy, bump, rmm_pool, rmm_arena, rmm_binning, bfc, cub,
    ort_arena, stitch, planned, compose,
}

/// A set of policies. A value, so that a program outside this repository can add its own.
#[derive(Clone, Debug)]
pub struct Registry {
    defs: Vec<&'static PolicyDef>,
}

impl Registry {
    /// The policies that poolsim comes with.
    pub fn builtin() -> Registry {
        POLICIES.iter().fold(Registry { defs: Vec::new() }, |registry, def| registry.with(def))
    }

    /// The same set and one more.
    ///
    /// # Panics
    /// If a name, an alias or a preset of `def` is taken.
    #[must_use]
    pub fn with(mut self, def: &'static PolicyDef) -> Registry {
        for name in names_of(def) {
            assert!(!self.names().any(|n| n == name), "the policy name `{name}` is taken");
        }
        self.defs.push(def);
        self
    }

    /// The policies, in the table's order.
    pub fn defs(&self) -> &[&'static PolicyDef] {
        &self.defs
    }

    /// Every name that a spec may start with: names, aliases, presets.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.defs.iter().flat_map(|def| names_of(def))
    }

    /// The policy that a name, an alias or a preset belongs to.
    pub fn find(&self, name: &str) -> Option<&'static PolicyDef> {
        self.defs.iter().copied().find(|def| names_of(def).any(|n| n == name))
    }

    /// Understands a spec. Errors name the nearest names.
    pub fn resolve(&self, spec: &PolicySpec) -> Result<Resolved, ConfigError> {
        let def = self.known(&spec.name)?;
        let spec = with_preset(def, spec)?;
        for param in def.params {
            let (Effect::Selects(table), Some(SpecValue::Atom(value))) =
                (param.effect, spec.get(param.key))
            else {
                continue;
            };
            if let Some((_, other)) = table.iter().find(|(v, _)| v == value) {
                return self.redirect(&spec, def, &format!("{}:{value}", param.key), other);
            }
        }
        let params = Params::resolve(def.name, def.params, &spec)?;
        Ok(Resolved { def, params, notes: Vec::new() })
    }

    /// Understands a spec and makes its policy.
    pub fn build(&self, spec: &PolicySpec, env: &BuildEnv) -> Result<Built, ConfigError> {
        self.resolve(spec)?.build(env)
    }

    fn known(&self, name: &str) -> Result<&'static PolicyDef, ConfigError> {
        self.find(name).ok_or_else(|| {
            ConfigError(format!("there is no policy `{name}`{}", hint(name, self.names())))
        })
    }

    /// `item` of a spec for `from` means the policy `to`. Other items must be right for `from`, and are
    /// dropped, as PyTorch does with settings of its native allocator.
    fn redirect(
        &self,
        spec: &PolicySpec,
        from: &'static PolicyDef,
        item: &str,
        to: &str,
    ) -> Result<Resolved, ConfigError> {
        Params::resolve(from.name, from.params, spec)?;
        let Some(def) = self.find(to) else {
            return Err(ConfigError(format!(
                "`{item}` means the policy `{to}`, which is not among the known ones: {}",
                self.names().collect::<Vec<_>>().join(", ")
            )));
        };
        let dropped = spec.items.iter().filter(|(k, v)| format!("{k}:{v}") != item);
        let notes = dropped
            .map(|(k, _)| {
                Warning(format!(
                    "`{k}` is a setting of `{}` and without effect under `{item}`",
                    from.name
                ))
            })
            .collect();
        Ok(Resolved { def, params: Params::defaults(def.params), notes })
    }
}

fn names_of(def: &'static PolicyDef) -> impl Iterator<Item = &'static str> {
    let presets = def.presets.iter().map(|p| p.name);
    std::iter::once(def.name).chain(def.aliases.iter().copied()).chain(presets)
}

/// The spec with its preset, if it names one, written out.
fn with_preset(def: &'static PolicyDef, spec: &PolicySpec) -> Result<PolicySpec, ConfigError> {
    let mut whole = PolicySpec::named(def.name);
    if let Some(preset) = def.presets.iter().find(|p| p.name == spec.name) {
        let written: PolicySpec = format!("{},{}", def.name, preset.items).parse()?;
        whole.items = written.items;
        if let Some((key, _)) = spec.items.iter().find(|(key, _)| whole.get(key).is_some()) {
            return Err(ConfigError(format!(
                "`{key}` is set by the preset `{}` already; write `{},{}` and change it there",
                preset.name, def.name, preset.items
            )));
        }
    }
    whole.items.extend(spec.items.iter().cloned());
    Ok(whole)
}

/// For [`PolicyDef::version`] of policies that reproduce no particular release.
pub fn no_version(_: &Params) -> String {
    String::new()
}

/// For [`PolicyDef::check`] of policies with nothing to warn about.
pub fn no_warnings(_: &Params, _: &BuildEnv) -> Vec<Warning> {
    Vec::new()
}
