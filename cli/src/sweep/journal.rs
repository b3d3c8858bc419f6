//! What a sweep has done, in a file that only grows.
//!
//! A frame is a line: a checksum, a blank, JSON. Each is synced to the disk before the next cell of the same thread
//! starts, so that a kill loses the cells under way and nothing else. A last line that was cut off is cut off for good.

use anyhow::{Context, anyhow};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The file, locked while it is open.
pub struct Journal {
    path: PathBuf,
    file: Mutex<File>,
    /// Results by key, as they were when the file was opened.
    pub done: HashMap<String, Value>,
}

impl Journal {
    /// Opens or makes it, and reads what is done.
    ///
    /// # Errors
    /// Another sweep has it open; it cannot be read or written; it is damaged before its last line.
    pub fn open(path: &Path) -> anyhow::Result<Journal> {
        let said = || path.display().to_string();
        let open = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = open.with_context(said)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(anyhow!(
                    "{}: another sweep writes here; wait for it or choose another --out",
                    said()
                ));
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(said),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(said)?;
        let (done, good) = read(&bytes).map_err(|line| {
            anyhow!("{}, line {line}: damaged, and not by a kill, which damages the last line alone; remove the file to start anew", said())
        })?;
        if good < bytes.len() {
            file.set_len(good as u64).with_context(said)?;
            file.seek(SeekFrom::End(0)).with_context(said)?;
        }
        Ok(Journal { path: path.into(), file: Mutex::new(file), done })
    }

    /// Writes a result down and waits for the disk. Returns it as it will be read back: a float may come back as its
    /// neighbour, and results must not depend on who ran them.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&self, key: &str, result: &Value) -> anyhow::Result<Value> {
        let json = serde_json::json!({ "key": key, "result": result }).to_string();
        let frame_text = format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
        let mut file = self.file.lock().expect("no writer panicked");
        file.write_all(frame_text.as_bytes())
            .and_then(|()| file.sync_data())
            .with_context(|| self.path.display().to_string())?;
        let (_, result) = frame(frame_text.as_bytes()).expect("a frame reads its own writing");
        Ok(result)
    }
}

/// The results, and up to where the bytes are whole frames.
fn read(bytes: &[u8]) -> Result<(HashMap<String, Value>, usize), usize> {
    let (mut done, mut good) = (HashMap::new(), 0);
    for (number, line) in (1..).zip(bytes.split_inclusive(|&byte| byte == b'\n')) {
        let last = good + line.len() == bytes.len();
        match frame(line) {
            Some((key, result)) => {
                done.insert(key, result);
                good += line.len();
            }
            None if last => break,
            None => return Err(number),
        }
    }
    Ok((done, good))
}

fn frame(line: &[u8]) -> Option<(String, Value)> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (sum, json) = text.split_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(json.as_bytes()) {
        return None;
    }
    let mut value: Value = serde_json::from_str(json).ok()?;
    let result = value.get_mut("result")?.take();
    Some((value.get("key")?.as_str()?.into(), result))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_file_cut_anywhere_keeps_its_whole_frames_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let journal = Journal::open(&path).unwrap();
        for n in 0..3 {
            journal.add(&format!("k{n}"), &json!({ "n": n, "text": "a\nb" })).unwrap();
        }
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let frames = whole[..cut].iter().filter(|&&byte| byte == b'\n').count();
            let journal = Journal::open(&path).unwrap();
            assert_eq!(journal.done.len(), frames, "cut at {cut}");
            for n in frames..3 {
                journal.add(&format!("k{n}"), &json!({ "n": n, "text": "a\nb" })).unwrap();
            }
            drop(journal);
            assert_eq!(std::fs::read(&path).unwrap(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn two_sweeps_cannot_write_the_same_file_and_damage_inside_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let journal = Journal::open(&path).unwrap();
        assert!(Journal::open(&path).is_err());
        journal.add("a", &json!(1)).unwrap();
        journal.add("b", &json!(2)).unwrap();
        drop(journal);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[3] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let error = Journal::open(&path).err().unwrap().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
