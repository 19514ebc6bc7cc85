//! What becomes of a connection when it is done with one of the things that it can do.

use crate::intake::Intake;
use crate::parcel::Contents;

/// What comes after it.
pub(crate) enum Outcome<Next> {
    /// Nothing: the connection is over.
    Over,
    /// It goes on elsewhere.
    Leave(Box<Contents>, Intake),
    /// It goes on here, as something else.
    Next(Next),
}
