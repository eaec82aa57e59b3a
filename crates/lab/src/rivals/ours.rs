//! Our implementation, on each instruction set of this machine.

use crate::report::OURS;
use packetlane::{Backend, Engine};

/// The name of our implementation without batches, in the tables.
pub(crate) const ONE_AT_A_TIME: &str = "one-at-a-time";

/// One of our engines, and its name in the tables.
#[derive(Clone, Debug)]
pub(crate) struct Ours {
    /// [`OURS`], or [`OURS`] with a suffix.
    pub(crate) name: String,
    /// The engine.
    pub(crate) engine: Engine,
}

impl Ours {
    /// The name of its backend.
    #[must_use]
    pub(crate) fn backend(&self) -> &'static str {
        self.engine.backend().name()
    }

    /// Whether it differs from `engine` only in IFMA.
    fn lacks_ifma(&self, engine: Engine) -> bool {
        self.engine != engine && self.backend() == engine.backend().name()
    }
}

/// `engine` as [`OURS`], then the less capable backends of this machine under separate names. A
/// `quick` run leaves out AVX-512 without IFMA, which few CPUs need.
#[must_use]
pub(crate) fn ours(engine: Engine, quick: bool) -> Vec<Ours> {
    let lesser = Backend::ALL
        .iter()
        .take_while(|backend| **backend != engine.backend())
        .filter_map(|backend| Engine::on(*backend).ok());
    let mut all = vec![Ours {
        name: OURS.to_owned(),
        engine,
    }];
    let lesser = lesser.collect::<Vec<_>>().into_iter().rev();
    all.extend(lesser.map(|lesser| Ours {
        name: format!("{OURS}-{}", lesser.backend().name()),
        engine: lesser,
    }));
    for one in &mut all {
        if one.lacks_ifma(engine) {
            one.name += "-noifma";
        }
    }
    all.retain(|one| !quick || !one.lacks_ifma(engine));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{distinct, is_ours};

    #[test]
    fn each_of_our_backends_has_a_name() {
        let names = |engine, quick| -> Vec<String> {
            let ours = ours(engine, quick).into_iter();
            ours.map(|ours| ours.name).collect()
        };
        assert_eq!(names(Engine::portable(), false), [OURS]);
        for &backend in Backend::ALL {
            let Ok(engine) = Engine::on(backend) else {
                continue;
            };
            let names = names(engine, false);
            assert_eq!(names[0], OURS);
            assert_eq!(names.len(), distinct(names.clone()).len());
            assert!(names.iter().all(|name| is_ours(name)));
        }
        let best = Engine::detect().unwrap();
        let quick = names(best, true);
        assert!(!quick.iter().any(|name| name.ends_with("noifma")));
    }
}
