//! The file that records go to.
//!
//! A process writes to memory that its file backs, a chunk at a time: what was written is in the file as soon as it
//! is in memory, even if the process is killed right after. Blocks of a chunk are taken from the disk before
//! it is mapped, so a full disk is an answer and not a signal.

use crate::say;
use poolsim_traces::calls::{Kind, MAGIC, RECORD_LEN, Record, VERSION};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a chunk: 16,384 records.
const CHUNK: usize = 1 << 20;

/// The log of this process. A forked child finds the parent's here, which it leaves as it is; see [`after_fork`].
static LOG: Mutex<Option<Log>> = Mutex::new(None);
/// Set once nothing can be written any more.
static OFF: AtomicBool = AtomicBool::new(false);
/// How the calls are seen, for a child's log too.
static VIA: OnceLock<String> = OnceLock::new();
/// Grows with each fork in this process's line of ancestors; threads compare it to know their number again.
static GENERATION: AtomicU32 = AtomicU32::new(0);

struct Log {
    file: File,
    path: String,
    chunk: NonNull<[u64; 8]>,
    /// Records in the chunk so far.
    used: usize,
    /// Bytes of the file before the chunk.
    before: u64,
    /// The monotonic clock at time 0.
    start: u64,
    libraries: u16,
    fork: u32,
}

// SAFETY: `chunk` is shared memory that only the holder of the log writes.
unsafe impl Send for Log {}

/// Whether records are to be kept at all.
pub fn wanted() -> bool {
    static PREFIX: OnceLock<bool> = OnceLock::new();
    *PREFIX.get_or_init(|| std::env::var_os("POOLSIM_CALLS").is_some_and(|path| !path.is_empty()))
        && !OFF.load(Ordering::Relaxed)
}

/// Nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Starts the log, seen `via` CUPTI or interposition.
pub fn start(via: &str) {
    static ONCE: Once = Once::new();
    let _ = VIA.set(via.to_string());
    ONCE.call_once(|| {
        // SAFETY: the handlers live as long as the library, which is never unloaded while CUDA is.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_in_parent), Some(after_fork)) };
    });
    with(|_| {});
    crate::used::watch();
}

thread_local! {
    /// The lock, held across a fork so that the child finds the log whole.
    static HELD: std::cell::RefCell<Option<MutexGuard<'static, Option<Log>>>> = const { std::cell::RefCell::new(None) };
}

extern "C" fn before_fork() {
    let guard = lock();
    let _ = HELD.try_with(|held| *held.borrow_mut() = Some(guard));
}

extern "C" fn after_in_parent() {
    let _ = HELD.try_with(|held| held.borrow_mut().take());
}

/// In the child: the log belongs to the parent. Its memory stays mapped and is not written again; a file of the child's own
/// is made at its first record.
extern "C" fn after_fork() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let _ = HELD.try_with(|held| held.borrow_mut().take());
}

fn lock() -> MutexGuard<'static, Option<Log>> {
    LOG.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs with the log of this process, which it opens at the first time; not if that cannot be.
fn with<T>(run: impl FnOnce(&mut Log) -> T) -> Option<T> {
    if !wanted() {
        return None;
    }
    let mut log = lock();
    let fork = GENERATION.load(Ordering::Relaxed);
    if log.as_ref().is_none_or(|log| log.fork != fork) {
        match Log::open(fork) {
            Ok(opened) => std::mem::forget(log.replace(opened)),
            Err(what) => {
                OFF.store(true, Ordering::Relaxed);
                say(&format!("nothing is recorded: {what}"));
                return None;
            }
        }
    }
    log.as_mut().map(run)
}

/// Appends a record; `at` is of the monotonic clock.
pub fn add(mut record: Record, at: u64) {
    record.thread = thread();
    with(|log| {
        record.at = at.saturating_sub(log.start);
        log.put(&record);
    });
}

/// Gives a library's name a number in this process's log, with the log's fork, for which it holds.
pub fn library(name: &str) -> Option<(u32, u16)> {
    with(|log| {
        if log.libraries < u16::MAX {
            log.libraries += 1;
            for part in Record::text(Kind::LIBRARY, log.libraries, name) {
                log.put(&part);
            }
        }
        (log.fork, log.libraries)
    })
}

/// How often this process's line has forked: numbers of libraries hold for one value of it.
pub fn fork() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// The calling thread's number in the system.
fn thread() -> u32 {
    thread_local! { static THREAD: std::cell::Cell<(u32, u32)> = const { std::cell::Cell::new((u32::MAX, 0)) }; }
    let fork = fork();
    THREAD
        .try_with(|known| {
            if known.get().0 != fork {
                // SAFETY: takes nothing and cannot fail.
                let id = unsafe { libc::syscall(libc::SYS_gettid) };
                known.set((fork, id as u32));
            }
            known.get().1
        })
        .unwrap_or(0)
}

impl Log {
    fn open(fork: u32) -> Result<Log, String> {
        let prefix = std::env::var("POOLSIM_CALLS").map_err(|e| format!("POOLSIM_CALLS: {e}"))?;
        let process = std::process::id();
        let path = format!("{prefix}.{process}.calls");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(&path)
            .map_err(|e| format!("{path} cannot be made: {e}"))?;
        let chunk = map(&file, 0).map_err(|e| format!("{path} cannot be written: {e}"))?;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut log =
            Log { file, path, chunk, used: 0, before: 0, start: now(), libraries: 0, fork };
        log.put(&Record {
            a: MAGIC,
            b: VERSION,
            c: process.into(),
            // SAFETY: takes nothing and cannot fail.
            d: unsafe { libc::getppid() } as u64,
            e: u64::try_from(wall.as_micros()).unwrap_or(0),
            ..Record::new(Kind::START)
        });
        let via = VIA.get().map_or("", String::as_str);
        log.fact("captured through", via);
        log.fact("command", &command());
        Ok(log)
    }

    fn fact(&mut self, key: &str, value: &str) {
        for part in Record::text(Kind::FACT, 0, &format!("{key}={value}")) {
            self.put(&part);
        }
    }

    fn put(&mut self, record: &Record) {
        if OFF.load(Ordering::Relaxed) {
            return;
        }
        if self.used == CHUNK / RECORD_LEN && !self.next_chunk() {
            return;
        }
        // SAFETY: `used` is below the number of records of the chunk, which is mapped for writing until the next takes its place,
        // and the lock is held.
        unsafe { self.chunk.add(self.used).write_volatile(record.words()) };
        self.used += 1;
    }

    fn next_chunk(&mut self) -> bool {
        match map(&self.file, self.before + CHUNK as u64) {
            Ok(chunk) => {
                // SAFETY: the old chunk was mapped with this length, and nothing else points into it.
                unsafe { libc::munmap(self.chunk.as_ptr().cast(), CHUNK) };
                self.chunk = chunk;
                self.before += CHUNK as u64;
                self.used = 0;
                true
            }
            Err(e) => {
                OFF.store(true, Ordering::Relaxed);
                say(&format!(
                    "{} ends here, it cannot grow: {e}; what was recorded is kept",
                    self.path
                ));
                false
            }
        }
    }
}

/// Maps the chunk at `at` of the file, with blocks of its own on the disk.
fn map(file: &File, at: u64) -> std::io::Result<NonNull<[u64; 8]>> {
    // SAFETY: an open descriptor; sizes are far below what an offset holds.
    let refused = unsafe { libc::posix_fallocate(file.as_raw_fd(), at as i64, CHUNK as i64) };
    if refused != 0 {
        return Err(std::io::Error::from_raw_os_error(refused));
    }
    // SAFETY: a new mapping at a place of the system's choice.
    let chunk = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            CHUNK,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            file.as_raw_fd(),
            at as i64,
        )
    };
    if chunk == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    NonNull::new(chunk.cast()).ok_or_else(|| std::io::Error::other("mapped at address 0"))
}

/// The program's command line.
fn command() -> String {
    let words: Vec<String> =
        std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    let line = words.join(" ");
    line.chars().take(1000).collect()
}
