//! Does a capture keep what a job's processes recorded, however they end, and leave the job alone? Real processes, with a package in
//! PyTorch's place whose history is a real recording.
#![cfg(unix)]

mod common;

use common::{corpus, json, poolsim};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder with a recording in plain and the package.
struct Scene {
    folder: TempDir,
}

/// What a captured job left.
struct Done {
    code: i32,
    out: String,
    err: String,
}

impl Scene {
    fn new() -> Scene {
        let folder = TempDir::new().unwrap();
        let recording = Path::new(&corpus("default/compiled.pickle.zst")).to_path_buf();
        let mut plain = Vec::new();
        poolsim_traces::content(&recording).unwrap().read_to_end(&mut plain).unwrap();
        fs::write(folder.path().join("recorded.pickle"), plain).unwrap();
        Scene { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Captures a command.
    fn capture(&self, options: &[&str], command: &[&str]) -> Done {
        let output = self.text("run.pickle");
        let args = [&["capture", "-o", &output], options, &["--"], command].concat();
        let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/capture");
        let output = poolsim(&args)
            .env("PYTHONPATH", fake)
            .env("FAKE_SNAPSHOT", self.path("recorded.pickle"))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Done {
            code: output.status.code().unwrap(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    fn python(&self, options: &[&str], program: &str) -> Done {
        self.capture(options, &["python3", "-c", program])
    }

    /// The files that a capture left, but for what was there before.
    fn left(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "recorded.pickle");
        names.sort();
        names
    }

    /// The capture is the recording: PyTorch's decisions in it, and what a snapshot does not hold beside it.
    fn holds(&self, name: &str) -> Value {
        let verified = json(&["verify", &self.text(name), "--json"], 0);
        assert_eq!(verified["files"][0]["mismatches"], 0);
        assert!(verified["files"][0]["entries_compared"].as_u64().unwrap() > 800);
        let beside = self.path(&name.replace(".pickle", ".json"));
        serde_json::from_slice(&fs::read(beside).unwrap()).unwrap()
    }
}

const START: &str = "import os, sys, signal, torch; torch.cuda._lazy_init(); ";

#[test]
fn the_jobs_words_and_code_are_its_own_and_its_history_is_kept() {
    let scene = Scene::new();
    let program = "torch.cuda.set_per_process_memory_fraction(0.5); \
                   [hook() for hook in torch.optim.optimizer.hooks * 3]; \
                   print(torch.cuda.memory._recording, torch.cuda.memory._metadata, *sys.argv); sys.exit(7)";
    let done = scene.capture(
        &["--max-entries", "1000"],
        &["python3", "-c", &(START.to_string() + program), "--lr", "1"],
    );
    assert_eq!(done.code, 7, "{}", done.err);
    let words = "{'context': None, 'max_entries': 1000} ['step 0', 'step 1', 'step 2', 'step 3'] -c --lr 1\n";
    assert_eq!(done.out, words);
    assert_eq!(scene.left(), ["run.json", "run.pickle"], "{}", done.err);
    let facts = scene.holds("run.pickle");
    assert_eq!(facts["memory_fraction"], 0.5);
    assert_eq!(facts["steps"], 3);
    assert_eq!(facts["written_at"], "exit");
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}

/// Calls that the history does not hold go beside it, and ranges go into it.
#[test]
fn calls_and_ranges_around_requests_are_kept() {
    let scene = Scene::new();
    let program = "cuda = torch.cuda; nvtx = cuda.nvtx; \
                   print(nvtx.range_push('forward'), nvtx.range_push('block'), nvtx.range_pop(), nvtx.range_pop()); \
                   torch.Tensor().record_stream(cuda); cuda.empty_cache(); cuda.memory.empty_cache(); \
                   cuda.set_per_process_memory_fraction(0.25, 1); \
                   print(*cuda.memory._metadata, sep=', ')";
    let done = scene.python(&[], &(START.to_string() + program));
    let marks = "step 0, step 0: forward, step 0: forward: block, step 0: forward, step 0";
    assert_eq!(done.out, format!("0 1 1 0\n{marks}\n"), "{}", done.err);
    let facts = scene.holds("run.pickle");
    let calls: Vec<&str> =
        facts["calls"].as_array().unwrap().iter().map(|c| c["call"].as_str().unwrap()).collect();
    let wanted = ["record_stream", "empty_cache", "empty_cache", "set_per_process_memory_fraction"];
    assert_eq!(calls, wanted);
    assert_eq!(facts["calls"][0]["addr"], 4096);
    assert_eq!(facts["memory_fraction"], Value::Null, "that of another device is not ours");
}

#[test]
fn however_a_process_ends_its_last_snapshot_is_kept() {
    let slow = "import time; os.environ['FAKE_SNAPSHOT_TAKES'] = '1'; time.sleep(1.4)";
    let cases: [(&[&str], &str, i32, &str); 9] = [
        (&[], "raise ValueError('no')", 1, "exit"),
        (
            &[],
            "os.kill(os.getpid(), signal.SIGTERM); import time; time.sleep(9)",
            128 + 15,
            "SIGTERM",
        ),
        (&[], "torch._C.observers[0](0, 1, 2, 3); os._exit(5)", 5, "out of memory"),
        (&[], "os.kill(os.getpid(), signal.SIGUSR1); os._exit(6)", 6, "SIGUSR1"),
        (
            &["--every", "1s"],
            "import time; time.sleep(1.6); os.kill(os.getpid(), 9)",
            128 + 9,
            "time",
        ),
        (
            &["--every", "2steps"],
            "[hook() for hook in torch.optim.optimizer.hooks * 5]; os.kill(os.getpid(), 9)",
            128 + 9,
            "step 4",
        ),
        // The end comes while another thread writes: the last snapshot is still that of the end.
        (&["--every", "1s"], slow, 0, "exit"),
        (
            &[],
            "signal.signal(signal.SIGTERM, lambda *_: os._exit(3)); os.kill(os.getpid(), signal.SIGUSR1); \
             os.kill(os.getpid(), signal.SIGTERM)",
            3,
            "SIGUSR1",
        ),
        (&["--stacks"], "assert torch.cuda.memory._recording['context'] == 'all'", 0, "exit"),
    ];
    for (options, program, code, written) in cases {
        let scene = Scene::new();
        let done = scene.python(options, &(START.to_string() + program));
        assert_eq!(done.code, code, "{program}: {}", done.err);
        assert_eq!(scene.holds("run.pickle")["written_at"], written, "{program}");
    }
}

#[test]
fn each_process_that_used_cuda_gets_a_file() {
    let scene = Scene::new();
    let rank = format!("RANK=$rank WORLD_SIZE=2 python3 -c '{START}'");
    let script = format!("for rank in 0 1; do {rank} & done; python3 -c 'import torch'; wait");
    let done = scene.capture(&[], &["sh", "-c", &script]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(
        scene.left(),
        ["run.rank0.json", "run.rank0.pickle", "run.rank1.json", "run.rank1.pickle"]
    );
    for rank in ["0", "1"] {
        assert_eq!(scene.holds(&format!("run.rank{rank}.pickle"))["rank"], rank);
    }

    let scene = Scene::new();
    let program = "import multiprocessing as m, torch\n\
                   def work(): torch.cuda._lazy_init()\n\
                   workers = [m.get_context('fork').Process(target=work) for _ in range(2)]\n\
                   [w.start() for w in workers]; [w.join() for w in workers]";
    let done = scene.python(&[], program);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(scene.left().len(), 4, "{:?}", scene.left());
    assert!(scene.left().iter().all(|name| name.starts_with("run.pid")), "{:?}", scene.left());
}

#[test]
fn a_job_without_a_history_runs_as_it_would_and_one_line_says_why() {
    let broken = "import os; os.environ['FAKE_TORCH_IS_BROKEN'] = '1'\n\
                  try: import torch\n\
                  except ImportError: print('no torch')";
    let cases: [(&[&str], &str, &str); 5] = [
        (&["python3", "-c", "print('hello')"], "hello\n", "no process used CUDA"),
        (&["python3", "-I", "-c", "print('hello')"], "hello\n", "python -I"),
        (&["sh", "-c", "echo hello"], "hello\n", "started no Python"),
        (&["python3", "-c", broken], "no torch\n", "no process used CUDA"),
        (
            &["python3", "-c", "import importlib.util as u; print(u.find_spec('torch').name)"],
            "torch\n",
            "no process",
        ),
    ];
    for (command, out, why) in cases {
        let scene = Scene::new();
        let done = scene.capture(&[], command);
        assert_eq!((done.code, done.out.as_str()), (0, out), "{command:?}: {}", done.err);
        assert!(
            done.err.contains(why) && done.err.lines().count() == 1,
            "{command:?}: {}",
            done.err
        );
        assert!(scene.left().is_empty(), "{:?}", scene.left());
    }
}

#[test]
fn a_snapshot_that_cannot_be_written_is_said_and_the_job_goes_on() {
    let scene = Scene::new();
    let full = "os.environ['FAKE_SNAPSHOT'] = '/nowhere'; print('worked')";
    let done = scene.python(&[], &(START.to_string() + full));
    assert_eq!((done.code, done.out.as_str()), (0, "worked\n"));
    assert!(done.err.contains("no snapshot could be written"), "{}", done.err);
    assert!(done.err.contains("the job goes on"), "{}", done.err);
}

/// A disk that fills up between two snapshots: the first stays, nothing half-written does, and one line says so.
#[test]
fn a_full_disk_keeps_the_last_complete_snapshot() {
    let scene = Scene::new();
    let program = "import resource; ask = lambda: os.kill(os.getpid(), signal.SIGUSR1); ask(); \
                   resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); ask(); ask(); \
                   print(*[n for n in os.listdir(os.environ['POOLSIM_CAPTURE_SPOOL']) if 'part' in n]); os._exit(4)";
    let done = scene.python(&[], &(START.to_string() + program));
    assert_eq!((done.code, done.out.as_str()), (4, "\n"), "{}", done.err);
    assert_eq!(done.err.matches("no snapshot could be written").count(), 1, "{}", done.err);
    assert_eq!(scene.holds("run.pickle")["written_at"], "SIGUSR1");
}

#[test]
fn what_stands_at_pythons_start_already_still_runs() {
    let scene = Scene::new();
    let own = scene.path("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("sitecustomize.py"), "print('mine')").unwrap();
    let script = format!("PYTHONPATH=$PYTHONPATH:{} python3 -c '{START}'", own.display());
    let done = scene.capture(&[], &["sh", "-c", &script]);
    assert_eq!(done.out, "mine\n", "{}", done.err);
    scene.holds("run.pickle");
}

#[test]
fn other_formats_are_converted_and_know_the_machine() {
    let scene = Scene::new();
    let output = scene.text("run.pst");
    let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/capture");
    let limit = "torch.cuda.set_per_process_memory_fraction(0.25)";
    poolsim(&["capture", "-o", &output, "--", "python3", "-c", &(START.to_string() + limit)])
        .env("PYTHONPATH", fake)
        .env("FAKE_SNAPSHOT", scene.path("recorded.pickle"))
        .assert()
        .code(0);
    assert_eq!(scene.left(), ["run.pst"]);
    let info = json(&["info", &output, "--json"], 0);
    assert!(info.to_string().contains("150109880320"), "{info}");
}

/// Two captures to one file, and one whose poolsim was killed.
#[test]
fn a_folder_that_is_there_is_neither_overwritten_nor_lost() {
    let scene = Scene::new();
    let spool = scene.path("run.pickle.capture");
    fs::create_dir(&spool).unwrap();
    let done = scene.python(&[], "print('never')");
    assert_eq!((done.code, done.out.as_str()), (2, ""), "{}", done.err);
    assert!(done.err.contains("another capture") && done.err.contains("--finish"), "{}", done.err);
    fs::copy(scene.path("recorded.pickle"), spool.join("77.pickle")).unwrap();
    fs::write(spool.join("78.pickle.part"), "cut").unwrap();
    let output = scene.text("run.pickle");
    let args = ["capture", "-o", &output, "--finish", spool.to_str().unwrap()];
    poolsim(&args).assert().code(0);
    assert_eq!(fs::read(output).unwrap(), fs::read(scene.path("recorded.pickle")).unwrap());
}
