//! The few kernels that replays put on streams.

use crate::call::{Context, Result};
use cudarc::driver::sys::{CUfunction, CUmodule, CUstream};
use poolsim_core::{Bytes, DevAddr, Nanos};
use std::sync::Arc;

const PTX: &str = concat!(include_str!("kernels.ptx"), "\0");

/// The kernels, loaded.
#[derive(Debug)]
pub(crate) struct Kernels {
    context: Arc<Context>,
    module: CUmodule,
    spin: CUfunction,
    count_wrong: CUfunction,
}

// SAFETY: module and function handles may be used from any thread that has the context current.
unsafe impl Send for Kernels {}

impl Kernels {
    pub(crate) fn load(context: &Arc<Context>) -> Result<Self> {
        let ptx = std::ffi::CStr::from_bytes_with_nul(PTX.as_bytes())
            .expect("the text ends in its only NUL");
        let module = context.load(ptx)?;
        Ok(Kernels {
            spin: context.function(module, c"spin")?,
            count_wrong: context.function(module, c"count_wrong")?,
            module,
            context: Arc::clone(context),
        })
    }

    /// Keeps a stream busy for so long.
    pub(crate) fn spin(&self, stream: CUstream, time: Nanos) -> Result<()> {
        self.context.launch(self.spin, 1, 1, stream, &mut [time])
    }

    /// Adds the number of words of a block that are not `expected` to the word at `wrong`.
    pub(crate) fn count_wrong(
        &self,
        stream: CUstream,
        block: DevAddr,
        words: Bytes,
        expected: u32,
        wrong: DevAddr,
    ) -> Result<()> {
        let blocks = u32::try_from(words.div_ceil(256 * 8)).unwrap_or(u32::MAX).min(2048);
        let mut params = [block, words, u64::from(expected), wrong];
        self.context.launch(self.count_wrong, blocks, 256, stream, &mut params)
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        let _ = self.context.enter();
        let _ = self.context.unload(self.module);
    }
}
