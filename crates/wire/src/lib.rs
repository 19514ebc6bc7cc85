//! Bytes on the wire: the HTTP/1.1 codec and pooled buffers. No I/O and no clock.
