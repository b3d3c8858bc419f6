//! What a trace's source could not see, in words, for the commands to which it matters.

use poolsim_core::TraceHeader;

/// A sentence for everything that the source could not see. That history starts late is said where a run starts.
pub fn lacks(header: &TraceHeader) -> Vec<&'static str> {
    let knows = &header.knows;
    let lines = [
        (
            knows.streams,
            "the source does not know streams: all requests are on one, so memory that streams keep from each other is \
             not seen",
        ),
        (
            knows.completions,
            "the source does not know which frees had to wait for other streams: all are complete at once",
        ),
        (
            knows.order,
            "the order of events at the same time is not certain: peaks may be off by what happened at one time",
        ),
        (
            knows.identity,
            "the source does not tell allocations apart: each free is that of the youngest allocation of its size, so \
             lifetimes, and with them fragmentation, are guesses",
        ),
        (knows.times, "the source has no times: only the order of events means something"),
        (knows.pools, "private pools are not known: all requests go to the default pool"),
    ];
    lines.into_iter().filter(|(known, _)| !known).map(|(_, line)| line).collect()
}
