//! The result of a stage of a connection.

use crate::intake::Intake;
use crate::parcel::Contents;

/// What follows a stage.
pub(crate) enum Outcome<Next> {
    /// The connection is over.
    Over,
    /// It moves to another Worker.
    Leave(Box<Contents>, Intake),
    /// It continues on this Worker in its next stage.
    Next(Next),
}
