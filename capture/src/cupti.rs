//! Callbacks before and after driver calls, from CUPTI.
//!
//! CUPTI is loaded when it is needed. Of its interface five functions and one struct are used, which are the same in CUPTI
//! 10 to 13; a version below or above is refused.

use crate::calls::{self, CALLS};
use crate::{log, resolve};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

/// API versions whose callbacks are as they are here: CUDA 11.0 (13) to 12.9 (28), then 130000 for CUDA 13.0 on.
const VERSIONS: [std::ops::RangeInclusive<u32>; 2] = [13..=99, 130_000..=139_999];
/// `CUPTI_CB_DOMAIN_DRIVER_API`.
const DRIVER_CALLS: c_int = 1;
/// `CUPTI_API_EXIT`.
const EXIT: c_int = 1;
/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`.
const ANOTHER_SUBSCRIBER: c_int = 39;

/// `CUpti_CallbackData`.
#[repr(C)]
struct CallbackData {
    site: c_int,
    function: *const c_char,
    arguments: *const c_void,
    answer: *const c_void,
    symbol: *const c_char,
    context: *const c_void,
    context_uid: u32,
    /// A number of ours that goes from a call's begin to its end.
    between: *mut u64,
    correlation: u32,
}

type Callback = unsafe extern "C" fn(*mut c_void, c_int, u32, *const CallbackData);

/// Subscribes to every call of [`CALLS`] and gives CUPTI's API version.
///
/// # Errors
/// No CUPTI, one of another version, or another subscriber: in words.
pub fn subscribe() -> Result<u32, String> {
    let library = load()?;
    let find = |name: &std::ffi::CStr| {
        resolve::symbol(library, name)
            .ok_or_else(|| format!("it has no {}", name.to_string_lossy()))
    };
    // SAFETY: functions of CUPTI with the signatures that its headers give them, from an open library.
    unsafe {
        let version_of: unsafe extern "C" fn(*mut u32) -> c_int =
            std::mem::transmute(find(c"cuptiGetVersion")?);
        let subscribe: unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> c_int =
            std::mem::transmute(find(c"cuptiSubscribe")?);
        let enable: unsafe extern "C" fn(u32, *mut c_void, c_int, u32) -> c_int =
            std::mem::transmute(find(c"cuptiEnableCallback")?);
        let unsubscribe: unsafe extern "C" fn(*mut c_void) -> c_int =
            std::mem::transmute(find(c"cuptiUnsubscribe")?);
        let mut version = 0;
        check(version_of(&raw mut version), "cuptiGetVersion")?;
        if !VERSIONS.iter().any(|known| known.contains(&version)) {
            return Err(format!("its API version {version} is not one of those that are known"));
        }
        let mut subscriber = std::ptr::null_mut();
        check(subscribe(&raw mut subscriber, called, std::ptr::null_mut()), "cuptiSubscribe")?;
        let mut enabled = 0;
        for call in &CALLS {
            // An older CUPTI does not know the newest calls, and then the program can't make them either.
            enabled += u32::from(enable(1, subscriber, DRIVER_CALLS, call.cbid) == 0);
        }
        if enabled == 0 {
            unsubscribe(subscriber);
            return Err("it enables none of the calls".into());
        }
        Ok(version)
    }
}

fn check(answer: c_int, name: &str) -> Result<(), String> {
    match answer {
        0 => Ok(()),
        ANOTHER_SUBSCRIBER => {
            Err("another profiler is attached to this program, and CUPTI takes one".into())
        }
        _ => Err(format!("{name} answered {answer}")),
    }
}

/// Which of [`CALLS`] a callback's number is, plus one; 0 for none.
static NUMBERS: [u8; 1024] = {
    let mut numbers = [0; 1024];
    let mut n = 0;
    while n < CALLS.len() {
        numbers[CALLS[n].cbid as usize] = n as u8 + 1;
        n += 1;
    }
    numbers
};

/// What CUPTI calls.
unsafe extern "C" fn called(_: *mut c_void, domain: c_int, cbid: u32, data: *const CallbackData) {
    let number = NUMBERS.get(cbid as usize).copied().unwrap_or(0);
    if domain != DRIVER_CALLS || number == 0 || data.is_null() {
        return;
    }
    let number = usize::from(number) - 1;
    // SAFETY: CUPTI hands over the data of a driver call; its answer is there at its end.
    unsafe {
        let data = &*data;
        let begins = calls::timed_at_begin(CALLS[number].kind);
        if data.site != EXIT {
            if begins && !data.between.is_null() {
                *data.between = log::now();
            }
            return;
        }
        let begin = if begins && !data.between.is_null() { *data.between } else { 0 };
        let answer = if data.answer.is_null() { 0 } else { *data.answer.cast::<u32>() };
        calls::ended(number, data.arguments, answer, begin, data.context);
    }
}

/// The library, from the first place that has one.
fn load() -> Result<resolve::Address, String> {
    let mut first = None;
    for place in places() {
        let Ok(name) = CString::new(place.as_os_str().as_encoded_bytes()) else { continue };
        match resolve::open(&name, libc::RTLD_NOW) {
            Ok(library) => return Ok(library),
            Err(error) => first = first.or(Some(error)),
        }
        if Some(place.as_os_str()) == std::env::var_os("POOLSIM_CUPTI").as_deref() {
            break;
        }
    }
    Err(first.unwrap_or_else(|| "not found".into()))
}

/// Where it may be: what `POOLSIM_CUPTI` names; else one that the program has loaded; beside the program's CUDA runtime, as
/// Python packages have it; under `CUDA_HOME`; and on the loader's path.
fn places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(named) = std::env::var_os("POOLSIM_CUPTI").filter(|name| !name.is_empty()) {
        return vec![named.into()];
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut seen = std::collections::BTreeSet::new();
    let loaded = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    for path in loaded.filter(|path| seen.insert(path.to_path_buf())) {
        let Some(name) = path.file_name().map(|name| name.to_string_lossy()) else { continue };
        if name.starts_with("libcupti.so") {
            places.insert(0, path.to_path_buf());
        }
        // A package of a library that needs CUDA, as nvidia/cudnn/lib: CUPTI's is nvidia/cuda_cupti/lib or nvidia/cu13/lib.
        let package = path.ancestors().find(|folder| folder.ends_with("nvidia"));
        if let Some(nvidia) = package {
            candidates(nvidia, &mut places);
        } else if let Some(site) = path.ancestors().find(|folder| folder.ends_with("site-packages"))
        {
            candidates(&site.join("nvidia"), &mut places);
        }
    }
    for home in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(home) = std::env::var_os(home).map(PathBuf::from) {
            for below in ["lib64", "extras/CUPTI/lib64"] {
                versions(&home.join(below), &mut places);
            }
        }
    }
    places.extend(["libcupti.so.13", "libcupti.so.12", "libcupti.so"].map(PathBuf::from));
    for below in ["lib64", "extras/CUPTI/lib64"] {
        versions(&Path::new("/usr/local/cuda").join(below), &mut places);
    }
    places
}

fn candidates(nvidia: &Path, places: &mut Vec<PathBuf>) {
    for package in ["cu13", "cuda_cupti"] {
        versions(&nvidia.join(package).join("lib"), places);
    }
}

fn versions(folder: &Path, places: &mut Vec<PathBuf>) {
    for name in ["libcupti.so.13", "libcupti.so.12", "libcupti.so"] {
        let path = folder.join(name);
        if path.exists() && !places.contains(&path) {
            places.push(path);
        }
    }
}
