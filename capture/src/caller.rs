//! Which library called.
//!
//! The caller is the first frame outside of CUDA's own libraries. Unwinding the stack for each call would cost microseconds, so
//! it is done once for each place that calls: how far up the stack the return address into the caller stood is kept, and
//! the next call only looks whether it stands there again. So that a leftover of an older call is not taken for it, the
//! return address one frame further in must stand in its place, too.

use crate::calls::CALLS;
use crate::log;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Deepest stack that is walked.
const DEEPEST: usize = 64;
/// Most places kept for a call and thread; beyond, the stack is walked again.
const PLACES: usize = 16;
/// Libraries of CUDA itself, by how their file names start: what calls through them is the caller.
const CUDA: [&str; 4] = ["libcuda.so", "libcudart", "libcupti", "libcudadebugger"];

/// A return address and how far above the stack's end it stood.
#[derive(Clone, Copy, Default)]
struct Word {
    up: usize,
    address: usize,
}

/// A place that calls.
#[derive(Clone, Copy)]
struct Place {
    caller: Word,
    inner: Word,
    fork: u32,
    library: u16,
}

/// What a thread knows.
struct Known {
    /// Where its stack starts, above all frames; 0 before the first call.
    stack: usize,
    places: [Vec<Place>; CALLS.len()],
}

thread_local! {
    static KNOWN: RefCell<Known> = const { RefCell::new(Known { stack: 0, places: [const { Vec::new() }; CALLS.len()] }) };
}

/// The number of the library that made the call of `CALLS[number]` that is being recorded; 0 if it is not known.
#[inline(never)]
pub fn library(number: usize) -> u16 {
    let here = 0_u8;
    let end = (&raw const here).addr();
    KNOWN
        .try_with(|known| known.try_borrow_mut().map_or(0, |mut known| known.library(number, end)))
        .unwrap_or(0)
}

impl Known {
    fn library(&mut self, number: usize, end: usize) -> u16 {
        let fork = log::fork();
        let stack = self.stack;
        let stands = |word: Word| {
            let at = end + word.up;
            // SAFETY: between the stack's end and its start, aligned as it was where the address was found.
            at + 8 <= stack && unsafe { (at as *const usize).read_volatile() } == word.address
        };
        for place in &self.places[number] {
            if place.fork == fork && stands(place.caller) && stands(place.inner) {
                return place.library;
            }
        }
        if self.stack == 0 {
            self.stack = stack_start();
        }
        self.walk(number, end, fork)
    }

    #[cold]
    fn walk(&mut self, number: usize, end: usize, fork: u32) -> u16 {
        let mut walk =
            Walk { end, inner: Word::default(), caller: None, name: String::new(), depth: 0 };
        // SAFETY: `step` gets the walk it expects, which outlives the call.
        unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
        let Some(caller) = walk.caller else { return 0 };
        let Some(library) = named(&walk.name) else { return 0 };
        let inside = |word: Word| word.address != 0 && word.up % 8 == end.wrapping_neg() % 8;
        if inside(caller) && inside(walk.inner) && self.places[number].len() < PLACES {
            self.places[number].push(Place { caller, inner: walk.inner, fork, library });
        }
        library
    }
}

/// The number of the library of this name in the log.
fn named(name: &str) -> Option<u16> {
    static NUMBERS: OnceLock<Mutex<HashMap<String, (u32, u16)>>> = OnceLock::new();
    let mut numbers =
        NUMBERS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    match numbers.get(name) {
        Some(&(fork, number)) if fork == log::fork() => Some(number),
        _ => {
            let numbered = log::library(name)?;
            numbers.insert(name.to_string(), numbered);
            Some(numbered.1)
        }
    }
}

struct Walk {
    end: usize,
    inner: Word,
    caller: Option<Word>,
    name: String,
    depth: usize,
}

#[repr(C)]
struct Context {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        step: unsafe extern "C" fn(*mut Context, *mut c_void) -> c_int,
        walk: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
    fn _Unwind_GetCFA(context: *mut Context) -> usize;
}

const GO_ON: c_int = 0;
const STOP: c_int = 4;

/// A frame: its return address stands just below the canonical frame address of the frame it returns from.
unsafe extern "C" fn step(context: *mut Context, walk: *mut c_void) -> c_int {
    // SAFETY: the unwinder hands back what `_Unwind_Backtrace` was given, and a context that is its own.
    let (walk, address, frame) =
        unsafe { (&mut *walk.cast::<Walk>(), _Unwind_GetIP(context), _Unwind_GetCFA(context)) };
    walk.depth += 1;
    if walk.depth > DEEPEST || address == 0 {
        return STOP;
    }
    let up = frame.wrapping_sub(8).wrapping_sub(walk.end);
    // SAFETY: read only if it lies above the stack's end, in a frame that the unwinder just read itself.
    let found = up < 1 << 20
        && frame % 8 == 0
        && unsafe { ((frame - 8) as *const usize).read() } == address;
    let word = if found { Word { up, address } } else { Word::default() };
    match module(address) {
        Some(name) if foreign(&name) => {
            walk.name = name;
            walk.caller = Some(word);
            STOP
        }
        _ => {
            walk.inner = word;
            GO_ON
        }
    }
}

/// The file that the code at this address comes from.
fn module(address: usize) -> Option<String> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: `info` is written to; the name it points to lives as long as the module.
    let name = unsafe {
        if libc::dladdr(address as *const c_void, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    let text = name.to_string_lossy();
    if info.dli_fbase.addr() == own_base() { None } else { Some(text.into_owned()) }
}

/// Where this library lies.
fn own_base() -> usize {
    static BASE: OnceLock<usize> = OnceLock::new();
    *BASE.get_or_init(|| {
        // SAFETY: as in `module`; all zeros is a legal Dl_info.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            libc::dladdr(own_base as *const c_void, &raw mut info);
            info.dli_fbase.addr()
        }
    })
}

fn foreign(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    !CUDA.iter().any(|own| name.starts_with(own))
}

/// The upper end of the calling thread's stack.
fn stack_start() -> usize {
    // SAFETY: the attributes are initialised by the first call and destroyed after the second.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return 1;
        }
        let (mut lowest, mut size) = (std::ptr::null_mut(), 0);
        let got =
            libc::pthread_attr_getstack(&raw const attributes, &raw mut lowest, &raw mut size);
        libc::pthread_attr_destroy(&raw mut attributes);
        if got == 0 { lowest.addr() + size } else { 1 }
    }
}
