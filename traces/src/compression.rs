//! Compressed files, read through as if they were not.

use std::io::{self, BufRead, BufReader, Cursor, Read};

/// A buffered byte stream that can move between threads.
pub type Stream = Box<dyn BufRead + Send>;

/// How often a file may be wrapped: `trace.pickle.zst.gz` is read, a third layer is not.
const MAX_LAYERS: usize = 2;

/// Memory that an xz stream may ask for; `xz -9` needs 65 MiB.
const XZ_MEMORY: u64 = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    Gzip,
    Zstd,
    Xz,
}

impl Compression {
    fn detect(head: &[u8]) -> Option<Compression> {
        match head {
            [0x1f, 0x8b, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Compression::Xz),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Xz => "xz",
        }
    }

    fn decode(self, inner: Stream) -> io::Result<Stream> {
        let decoder: Box<dyn Read + Send> = match self {
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(inner)),
            Compression::Zstd => Box::new(zstd::Decoder::with_buffer(inner)?),
            Compression::Xz => {
                let concatenated = liblzma::stream::CONCATENATED;
                let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, concatenated)?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(inner, stream))
            }
        };
        let layer = Layer { decoder, name: self.name(), produced: 0, damage: None };
        Ok(Box::new(BufReader::with_capacity(1 << 16, layer)))
    }
}

/// Names the layer in errors: decoders say `corrupt deflate stream` of a file that the user knows as a trace.
struct Layer {
    decoder: Box<dyn Read + Send>,
    name: &'static str,
    produced: u64,
    /// Decoders may go on after an error; a damaged stream has ended.
    damage: Option<String>,
}

impl Layer {
    fn fail(&self) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, self.damage.clone().unwrap_or_default())
    }
}

impl Read for Layer {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.damage.is_some() {
            return Err(self.fail());
        }
        match self.decoder.read(buf) {
            Ok(n) => {
                self.produced += n as u64;
                Ok(n)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted || e.raw_os_error().is_some() => {
                Err(e)
            }
            Err(e) => {
                self.damage = Some(format!(
                    "the {name} stream is damaged or cut short after {} decompressed bytes ({e}); \
                     check it with `{name} -t` and fetch the file again",
                    self.produced,
                    name = self.name,
                ));
                Err(self.fail())
            }
        }
    }
}

/// The content of a possibly compressed stream.
pub(crate) struct Peeled {
    /// The content from its start.
    pub stream: Stream,
    /// Up to the asked number of its first bytes.
    pub head: Vec<u8>,
    /// The outermost compression.
    pub compression: Option<&'static str>,
    /// Why `head` is shorter than it should be; reading on gives the same error.
    pub damage: Option<io::Error>,
}

/// Removes up to two layers of compression and looks at the first `head_len` bytes below them.
pub(crate) fn peel(mut stream: Stream, head_len: usize) -> io::Result<Peeled> {
    let mut compression = None;
    for layer in 0.. {
        let mut head = Vec::new();
        let damage = match (&mut stream).take(head_len as u64).read_to_end(&mut head) {
            Err(e) if e.kind() == io::ErrorKind::InvalidData => Some(e),
            read => read.map(|_| None)?,
        };
        let found = Compression::detect(&head);
        stream = Box::new(Cursor::new(head.clone()).chain(stream));
        let Some(found) = found else {
            return Ok(Peeled { stream, head, compression, damage });
        };
        if layer == MAX_LAYERS {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the file is compressed more than {MAX_LAYERS} times over; decompress it first"
                ),
            ));
        }
        compression.get_or_insert(found.name());
        stream = found.decode(stream)?;
    }
    unreachable!("the loop returns")
}
