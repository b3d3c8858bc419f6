//! The pickle that `torch.cuda.memory._dump_snapshot` writes.

use super::assemble::{Parsed, assemble};
use super::fold::Snapshot;
use super::words::WORDS;
use crate::import::{Imported, Importer, Input};
use crate::open::OpenOptions;
use crate::pickle::{Loaded, Machine};
use poolsim_core::TraceError;
use std::io::Read;

/// PyTorch snapshot pickles of protocols 0 to 5.
pub static IMPORTER: Importer = Importer {
    name: "torch-pickle",
    summary: "PyTorch memory snapshot, written by torch.cuda.memory._dump_snapshot",
    extensions: &["pickle", "pkl"],
    sniff,
    read: |input: Input, options| read(input.reader, options),
};

/// Protocols from 2 on start with their number; older ones with the opcodes that make a dict or a list.
fn sniff(head: &[u8]) -> bool {
    match head {
        [0x80, protocol, ..] => *protocol <= 5,
        [b'(', b'd' | b'l', next, ..] => matches!(next, b'p' | b'V' | b'S' | b'(' | b'.'),
        [b'}' | b']', b'q' | b'r' | b'(' | b'.', ..] => true,
        _ => false,
    }
}

/// Reads the snapshot that a stream holds, in one forward pass. Bytes after the pickle are not looked at.
///
/// # Errors
/// Malformed, cut or hostile pickles, with the byte offset; pickles that are no snapshot; a device that
/// is not there.
pub fn read(reader: impl Read, options: &OpenOptions) -> Result<Imported, TraceError> {
    let machine = Machine::new(reader, Snapshot::default(), WORDS);
    assemble(parsed(machine.run()?).0, options)
}

/// What a pickle held, and the reader behind it.
pub(super) fn parsed<R>(loaded: Loaded<R, Snapshot>) -> (Parsed, R) {
    let Loaded { root, objects, fold, length, reader } = loaded;
    (Parsed { root, objects, snapshot: fold, length, notes: Vec::new() }, reader)
}
