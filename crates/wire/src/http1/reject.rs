//! Reasons to refuse a message.

/// A refusal: the status of the response, and a reason for logs and metrics.
///
/// The end of a refused message is unknown, so its connection is always closed. The status is for the answer to a
/// client; a refused *response* is the upstream's fault and is answered with 502, whatever `status` says. [`REJECTS`]
/// lists every value that this crate returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject {
    /// Status of the response: 400, 414, 417, 431, 501 or 505.
    pub status: u16,
    /// Reason code in snake case; stable, and fit for a metric label.
    pub code: &'static str,
    /// The reason as text for people.
    pub detail: &'static str,
}

impl std::fmt::Display for Reject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.status, self.code, self.detail)
    }
}

impl std::error::Error for Reject {}

macro_rules! rejects {
    ($($name:ident = $status:literal $code:literal $detail:literal;)*) => {
        impl Reject {
            $(pub(crate) const $name: Reject =
                Reject { status: $status, code: $code, detail: $detail };)*
        }

        /// All refusals, for documentation and for metrics with a bounded label set.
        pub const REJECTS: &[Reject] = &[$(Reject::$name),*];
    };
}

rejects! {
    // Lines
    BARE_LF = 400 "bare_lf" "a line ends with LF alone";
    BARE_CR = 400 "bare_cr" "a CR is not followed by LF";
    NUL = 400 "nul" "a head contains a NUL";
    CONTROL_CHARACTER = 400 "control_character" "a head contains a control character";
    LEADING_EMPTY_LINES = 400 "leading_empty_lines" "too many empty lines before the message";
    HEAD_TOO_LARGE = 431 "head_too_large" "the head is longer than allowed";
    TOO_MANY_FIELDS = 431 "too_many_fields" "the head has more fields than allowed";
    MALFORMED_HEAD = 400 "malformed_head" "the head does not follow the grammar";

    // Request line
    TLS_ON_PLAINTEXT = 400 "tls_on_plaintext" "a TLS handshake on a plaintext port";
    HTTP2_PREFACE = 505 "http2_preface" "an HTTP/2 preface on an HTTP/1 port";
    MALFORMED_REQUEST_LINE = 400 "malformed_request_line" "the request line is not method, target, version";
    REQUEST_LINE_WHITESPACE = 400 "request_line_whitespace" "the request line has whitespace other than two single spaces";
    HTTP_09 = 505 "http_09" "a request line without a version";
    MALFORMED_VERSION = 400 "malformed_version" "the version is not HTTP/1.0 or HTTP/1.1 to the letter";
    UNSUPPORTED_VERSION = 505 "unsupported_version" "only HTTP/1.0 and HTTP/1.1 are spoken here";
    METHOD_NOT_TOKEN = 400 "method_not_token" "the method is not a token";
    METHOD_TOO_LONG = 501 "method_too_long" "the method is longer than 32 bytes";
    TARGET_TOO_LONG = 414 "target_too_long" "the request target is longer than allowed";
    TARGET_NOT_ASCII = 400 "target_not_ascii" "the request target has bytes beyond ASCII";
    TARGET_FRAGMENT = 400 "target_fragment" "the request target has a fragment";
    TARGET_FORM = 400 "target_form" "the request target has none of the four forms, or not the method's";
    TARGET_SCHEME = 400 "target_scheme" "the request target's scheme is not http";

    // Status line
    MALFORMED_STATUS_LINE = 400 "malformed_status_line" "the status line is not version, status, reason";
    STATUS_OUT_OF_RANGE = 400 "status_out_of_range" "the status is not between 100 and 599";

    // Fields
    OBS_FOLD = 400 "obs_fold" "a field continues on a second line";
    FIELD_WITHOUT_COLON = 400 "field_without_colon" "a field line has no colon";
    EMPTY_FIELD_NAME = 400 "empty_field_name" "a field has no name";
    SPACE_BEFORE_COLON = 400 "space_before_colon" "whitespace between a field's name and its colon";
    FIELD_NAME_NOT_TOKEN = 400 "field_name_not_token" "a field's name is not a token";
    FIELD_ALIAS = 400 "field_alias" "a field's name is another spelling of a framing field's";

    // Framing
    CONTENT_LENGTH_WITH_TRANSFER_ENCODING = 400 "content_length_with_transfer_encoding" "both Content-Length and Transfer-Encoding";
    DUPLICATE_CONTENT_LENGTH = 400 "duplicate_content_length" "more than one Content-Length, even if equal";
    MALFORMED_CONTENT_LENGTH = 400 "malformed_content_length" "Content-Length is not a plain decimal number";
    CONTENT_LENGTH_OVERFLOW = 400 "content_length_overflow" "Content-Length is beyond 63 bits";
    DUPLICATE_TRANSFER_ENCODING = 400 "duplicate_transfer_encoding" "more than one Transfer-Encoding field";
    MALFORMED_TRANSFER_ENCODING = 400 "malformed_transfer_encoding" "Transfer-Encoding is not a list of codings, or chunked is not its last and only";
    UNSUPPORTED_TRANSFER_CODING = 501 "unsupported_transfer_coding" "a transfer coding other than chunked";
    TRANSFER_ENCODING_IN_HTTP10 = 400 "transfer_encoding_in_http10" "Transfer-Encoding in HTTP/1.0";

    // Host and authority
    MISSING_HOST = 400 "missing_host" "HTTP/1.1 without Host";
    DUPLICATE_HOST = 400 "duplicate_host" "more than one Host";
    EMPTY_HOST = 400 "empty_host" "an empty host";
    MALFORMED_HOST = 400 "malformed_host" "a host that is neither a name nor an address";
    MALFORMED_PORT = 400 "malformed_port" "a port that is not between 1 and 65535";
    USERINFO = 400 "userinfo" "user information in the authority";

    // Other fields
    MALFORMED_CONNECTION = 400 "malformed_connection" "Connection is not a list of tokens";
    CONNECTION_NOMINATES_PROTECTED = 400 "connection_nominates_protected" "Connection names a field that must not be removed";
    TOO_MANY_CONNECTION_OPTIONS = 400 "too_many_connection_options" "Connection names more fields than allowed";
    UNKNOWN_EXPECTATION = 417 "unknown_expectation" "an expectation other than 100-continue";

    // Chunked bodies
    MALFORMED_CHUNK_SIZE = 400 "malformed_chunk_size" "a chunk size that is not plain hexadecimal digits";
    CHUNK_SIZE_OVERFLOW = 400 "chunk_size_overflow" "a chunk size beyond 16 digits or 63 bits";
    MALFORMED_CHUNK_EXTENSION = 400 "malformed_chunk_extension" "a chunk extension that does not follow the grammar";
    CHUNK_LINE_TOO_LONG = 400 "chunk_line_too_long" "a chunk's size line is longer than allowed";
    CHUNK_OVERHEAD = 400 "chunk_overhead" "far more chunk framing than data";
    CHUNK_DATA_END = 400 "chunk_data_end" "a chunk's data is not followed by CRLF";
    TRAILERS_TOO_LARGE = 431 "trailers_too_large" "the trailer section is longer than allowed";
    MALFORMED_TRAILER = 400 "malformed_trailer" "a trailer field does not follow the grammar";

    // Path
    MALFORMED_PERCENT = 400 "malformed_percent" "a percent sign without two hexadecimal digits";
    ENCODED_CONTROL = 400 "encoded_control" "a percent-encoded control character in the path";
    BACKSLASH = 400 "backslash" "a backslash in the path";
    ENCODED_SEPARATOR = 400 "encoded_separator" "an encoded slash or backslash where a path rule applies";
    DOT_SEGMENT = 400 "dot_segment" "a dot segment where a path rule applies";
    PATH_NOT_ABSOLUTE = 400 "path_not_absolute" "the path does not begin with a slash";
}
