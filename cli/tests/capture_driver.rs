//! `poolsim capture --driver`, on programs over a driver without a device (those of the capture library's own tests).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

struct Stage {
    folder: TempDir,
    library: PathBuf,
}

impl Stage {
    fn new() -> Stage {
        let stage = Stage { folder: tempfile::tempdir().unwrap(), library: library() };
        for (source, to, flags) in [
            ("driver.c", "libcuda.so.1", &["-shared", "-Wl,-soname,libcuda.so.1"][..]),
            ("cupti.c", "libcupti.so.12", &["-shared"]),
            ("library.c", "liblayer.so", &["-shared"]),
            ("program.c", "program", &["-L.", "-l:libcuda.so.1", "-llayer"]),
        ] {
            let status = Command::new("cc")
                .args(["-O1", "-fPIC", "-o", to])
                .arg(workspace().join("capture/tests/programs").join(source))
                .args(flags)
                .args(["-ldl", "-lpthread", "-Wl,-rpath,$ORIGIN"])
                .current_dir(stage.path())
                .status();
            assert!(status.expect("a C compiler").success(), "{source}");
        }
        stage
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn poolsim(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_poolsim"))
            .args(arguments)
            .current_dir(self.path())
            .env("POOLSIM_CAPTURE_LIBRARY", &self.library)
            .env("POOLSIM_CUPTI", self.path().join("libcupti.so.12"))
            .output()
            .unwrap()
    }

    fn info(&self, trace: &str) -> serde_json::Value {
        let output = self.poolsim(&["info", trace, "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn left(&self, part: &str) -> Vec<String> {
        let names = std::fs::read_dir(self.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.contains(part)).collect();
        names.sort();
        names
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// The capture library, which no crate of the workspace depends on.
fn library() -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_poolsim")).ancestors().nth(2).unwrap();
    let status = Command::new(env!("CARGO"))
        .args(["build", "-q", "--locked", "-p", "poolsim-capture", "--target-dir"])
        .arg(target)
        .current_dir(workspace())
        .status();
    assert!(status.unwrap().success());
    target.join("debug/libpoolsim_capture.so")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_is_captured_shown_and_replayed() {
    let stage = Stage::new();
    for (via, through) in
        [("cupti", "CUPTI, API version 28"), ("preload", "interposed driver functions")]
    {
        let ran = stage.poolsim(&[
            "capture",
            "--driver",
            "--via",
            via,
            "-o",
            "a.pst",
            "--",
            "./program",
            "lookup",
            "plain",
        ]);
        assert_eq!(ran.status.code(), Some(7), "{}", text(&ran.stderr));
        assert_eq!(text(&ran.stdout), "granted 5 frees 4 bytes 2113440 refused 1\n");
        let facts = stage.info("a.pst");
        assert_eq!(facts["attributes"]["captured through"], through);
        assert_eq!(facts["requests"]["final_live_bytes"], 3000);
        let layers: Vec<_> = facts["layers"].as_array().unwrap().iter().collect();
        assert_eq!(
            (&layers[0]["library"], &layers[0]["peak_bytes"]),
            (&"program".into(), &(2 << 20).into())
        );
        assert_eq!(
            (&layers[1]["library"], &layers[1]["final_bytes"]),
            (&"liblayer.so".into(), &3000.into())
        );
        assert_eq!(stage.left(".calls"), [""; 0]);
        for policy in ["pytorch", "cuda-async"] {
            let replayed = stage.poolsim(&["replay", "a.pst", "--policy", policy]);
            // The request for a petabyte is refused again.
            assert_eq!(replayed.status.code(), Some(3), "{}", text(&replayed.stderr));
        }
    }
}

#[test]
fn several_processes_are_files_that_merge() {
    let stage = Stage::new();
    let ran =
        stage.poolsim(&["capture", "--driver", "-o", "a.pst", "--", "./program", "linked", "fork"]);
    assert_eq!(ran.status.code(), Some(5), "{}", text(&ran.stderr));
    let traces = stage.left(".pst");
    assert_eq!(traces.len(), 2, "{traces:?}");
    let merged = stage.poolsim(&["trace", "merge", &traces[0], &traces[1], "-o", "all.pst"]);
    assert!(merged.status.success(), "{}", text(&merged.stderr));
    let total = |name: &str| stage.info(name)["events"]["total"].as_u64().unwrap();
    assert_eq!(total("all.pst"), total(&traces[0]) + total(&traces[1]));
    assert_eq!(stage.info("all.pst")["layers"][1]["library"], "liblayer.so");
}

#[test]
fn the_end_of_the_command_is_the_end_of_the_capture() {
    let stage = Stage::new();
    let killed =
        stage.poolsim(&["capture", "--driver", "-o", "a.pst", "--", "./program", "dlsym", "kill"]);
    assert_eq!(killed.status.code(), Some(128 + 9));
    assert_eq!(stage.info("a.pst")["requests"]["final_live_bytes"], 3000);
    let nothing =
        stage.poolsim(&["capture", "--driver", "-o", "b.pst", "--", "sh", "-c", "exit 4"]);
    assert_eq!(nothing.status.code(), Some(4));
    assert!(text(&nothing.stderr).contains("no process started CUDA"), "{}", text(&nothing.stderr));
    let absent = stage.poolsim(&["capture", "--driver", "-o", "b.pst", "--", "./no-such-program"]);
    assert_eq!(absent.status.code(), Some(1));
    let unbuilt = Command::new(env!("CARGO_BIN_EXE_poolsim"))
        .args(["capture", "--driver", "-o", "b.pst", "--", "true"])
        .env("POOLSIM_CAPTURE_LIBRARY", "/nonexistent.so")
        .output()
        .unwrap();
    assert!(text(&unbuilt.stderr).contains("cargo build --release -p poolsim-capture"));
}
