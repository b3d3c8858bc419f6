//! The strings that snapshots are made of, with fixed ids.

use crate::pickle::TextId;

macro_rules! words {
    ($($name:ident = $text:literal,)*) => {
        #[allow(clippy::upper_case_acronyms, non_camel_case_types)]
        enum Index { $($name,)* }
        $(pub const $name: TextId = TextId(Index::$name as u32);)*
        /// Every word; the position is the id.
        pub const WORDS: &[&str] = &[$($text,)*];
    };
}

words! {
    // Keys of entries, segments, blocks, frames and annotations: below 64, so that a set of keys is a word.
    ACTION = "action",
    ADDR = "addr",
    DEVICE_FREE = "device_free",
    SIZE = "size",
    STREAM = "stream",
    TIME_US = "time_us",
    FRAMES = "frames",
    COMPILE_CONTEXT = "compile_context",
    USER_METADATA = "user_metadata",
    POOL_ID = "pool_id",
    DEVICE = "device",
    ADDRESS = "address",
    TOTAL_SIZE = "total_size",
    SEGMENT_TYPE = "segment_type",
    SEGMENT_POOL_ID = "segment_pool_id",
    IS_EXPANDABLE = "is_expandable",
    BLOCKS = "blocks",
    STATE = "state",
    REQUESTED_SIZE = "requested_size",
    HISTORY = "history",
    REAL_SIZE = "real_size",
    NAME = "name",
    FILENAME = "filename",
    LINE = "line",
    STAGE = "stage",
    // Keys of the top level and of the settings.
    SEGMENTS = "segments",
    DEVICE_TRACES = "device_traces",
    ALLOCATOR_SETTINGS = "allocator_settings",
    EXTERNAL_ANNOTATIONS = "external_annotations",
    CONF = "PYTORCH_CUDA_ALLOC_CONF",
    NPU_CONF = "PYTORCH_NPU_ALLOC_CONF",
    MAX_SPLIT_SIZE = "max_split_size",
    GC_THRESHOLD = "garbage_collection_threshold",
    EXPANDABLE_SEGMENTS = "expandable_segments",
    ROUNDUP = "roundup_power2_divisions",
    // Values.
    ALLOC = "alloc",
    FREE = "free",
    FREE_REQUESTED = "free_requested",
    FREE_COMPLETED = "free_completed",
    SEGMENT_ALLOC = "segment_alloc",
    SEGMENT_FREE = "segment_free",
    SEGMENT_MAP = "segment_map",
    SEGMENT_UNMAP = "segment_unmap",
    OOM = "oom",
    SNAPSHOT = "snapshot",
    USER_DEFINED = "user_defined",
    WORKSPACE_SNAPSHOT = "workspace_snapshot",
    SMALL = "small",
    ACTIVE_ALLOCATED = "active_allocated",
    ACTIVE_PENDING_FREE = "active_pending_free",
    ACTIVE_AWAITING_FREE = "active_awaiting_free",
    INACTIVE = "inactive",
    START = "START",
    END = "END",
    EMPTY = "",
    NOT_AVAILABLE = "N/A",
}

/// A set of the words below 64.
#[derive(Clone, Copy)]
pub struct Keys(u64);

impl Keys {
    /// The keys among alternating keys and values.
    #[inline]
    pub fn of(pairs: &[crate::pickle::Value]) -> Keys {
        let mut set = 0;
        for key in pairs.iter().step_by(2) {
            if let crate::pickle::Value::Text(id) = key {
                set |= u64::from(id.0 < 64) << (id.0 & 63);
            }
        }
        Keys(set)
    }

    /// Whether a key is there.
    #[inline]
    pub fn has(self, key: TextId) -> bool {
        self.0 >> key.0 & 1 == 1
    }

    /// Whether one of these keys is there.
    pub fn any(self, keys: &[TextId]) -> bool {
        keys.iter().any(|&k| self.has(k))
    }
}
