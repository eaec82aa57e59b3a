//! Selection of an engine, and its errors.

use packetlane::sha256d::Hasher;
use packetlane::{Backend, BackendError, Engine};
use std::process::Command;

#[test]
fn an_engine_is_chosen_by_name() {
    assert_eq!(Engine::named("portable"), Ok(Engine::portable()));
    assert_eq!(
        Engine::named("no such"),
        Err(BackendError::Unknown("no such".into()))
    );
    assert_eq!(Engine::on(Backend::Portable), Ok(Engine::portable()));
    for backend in Backend::ALL.iter().filter(|b| !b.is_available()) {
        let error = BackendError::Unavailable(*backend);
        assert_eq!(Engine::on(*backend), Err(error));
    }
}

/// Only errors of a detection name the variable, and only if it names a known backend do they
/// suggest unsetting it.
#[test]
fn errors_suggest_what_to_do() {
    let shown = |error: BackendError| error.to_string();
    let unknown = shown(BackendError::Unknown("avx3".into()));
    assert!(unknown.contains("avx3") && unknown.contains("portable"));
    assert!(!unknown.contains(Engine::BACKEND_VARIABLE));
    let unavailable = shown(BackendError::Unavailable(Backend::Portable));
    assert!(!unavailable.contains(Engine::BACKEND_VARIABLE) && !unavailable.contains("unset"));
    let unknown = shown(BackendError::VariableUnknown("avx3".into()));
    assert!(unknown.contains(Engine::BACKEND_VARIABLE) && unknown.contains("avx3"));
    let unavailable = shown(BackendError::VariableUnavailable(Backend::Portable));
    assert!(unavailable.contains(Engine::BACKEND_VARIABLE) && unavailable.contains("unset"));
}

/// Run by [`the_variable_chooses_the_engine`] with `PACKETLANE_BACKEND` set.
#[test]
#[ignore = "for a process of its own"]
fn detect() {
    let expected = match std::env::var(Engine::BACKEND_VARIABLE).as_deref() {
        Err(_) => Ok(Engine::best()),
        Ok(name) => Engine::named(name).map_err(|error| match error {
            BackendError::Unknown(name) => BackendError::VariableUnknown(name),
            BackendError::Unavailable(backend) => BackendError::VariableUnavailable(backend),
            error => error,
        }),
    };
    assert_eq!(Engine::detect(), expected);
    let hasher = Hasher::detect().map(|hasher| hasher.backend());
    assert_eq!(hasher, expected.map(|engine| engine.backend()));
    // The variable has no effect here.
    assert_eq!(Hasher::default().backend(), Engine::best().backend());
}

#[test]
fn the_variable_chooses_the_engine() {
    let test = std::env::current_exe().unwrap();
    for name in [
        None,
        Some("portable"),
        Some("avx2"),
        Some("avx512"),
        Some("neon"),
        Some("no such"),
        Some(""),
    ] {
        let mut command = Command::new(&test);
        command.args(["--exact", "detect", "--ignored"]);
        command.env_remove(Engine::BACKEND_VARIABLE);
        command.envs(name.map(|name| (Engine::BACKEND_VARIABLE, name)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{name:?}: {output:?}");
    }
}
