//! Error types that a handler may return. Tests: `tests/reports.rs`.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt::Debug;
use std::ops::Deref;

use super::Failure;
use crate::error::BoxError;

/// An error that a handler may return: any [`std::error::Error`], an `anyhow::Error`, an `eyre::Report`, a
/// [`BoxError`], or a text.
///
/// The compiler finds `Kind`; it keeps the implementations apart. A report such as `anyhow::Error` is kept whole, so that the error
/// inside it and its causes are found by their type: converted to a [`BoxError`], it would hide its first error.
#[diagnostic::on_unimplemented(
    message = "a handler cannot fail with `{Self}`",
    label = "`{Self}` is not an error",
    note = "write `Result<(), oncebox::BoxError>`, or an error type of yours that implements `std::error::Error`; `anyhow::Error` and `eyre::Report` work as well"
)]
pub trait IntoFailure<Kind>: 'static {
    /// Converts the error.
    fn into_failure(self) -> Failure;
}

/// Kind of a value that implements [`std::error::Error`]; see [`IntoFailure`].
#[derive(Debug)]
pub enum ErrorValue {}

/// Kind of a pointer to an error of any type; see [`IntoFailure`].
#[derive(Debug)]
pub enum ErrorReport {}

/// Kind of a text; see [`IntoFailure`].
#[derive(Debug)]
pub enum ErrorMessage {}

/// An error whose type is erased.
pub(super) trait HeldError: Debug + Send + Sync {
    /// Returns the error itself, not its wrapper.
    fn error(&self) -> &(dyn StdError + 'static);

    /// Returns the error as the caller converts it.
    fn into_box(self: Box<Self>) -> BoxError;
}

impl<E: StdError + Send + Sync + 'static> IntoFailure<ErrorValue> for E {
    fn into_failure(self) -> Failure {
        Failure::held(HeldBox(Box::new(self)))
    }
}

impl<E> IntoFailure<ErrorReport> for E
where
    E: Deref<Target = dyn StdError + Send + Sync> + Into<BoxError> + Debug + Send + Sync + 'static,
{
    fn into_failure(self) -> Failure {
        Failure::held(HeldReport(self))
    }
}

impl IntoFailure<ErrorMessage> for String {
    fn into_failure(self) -> Failure {
        Failure::held(HeldBox(self.into()))
    }
}

impl IntoFailure<ErrorMessage> for &'static str {
    fn into_failure(self) -> Failure {
        Failure::held(HeldBox(self.into()))
    }
}

impl IntoFailure<ErrorMessage> for Cow<'static, str> {
    fn into_failure(self) -> Failure {
        Failure::held(HeldBox(self.into()))
    }
}

#[derive(Debug)]
struct HeldBox(BoxError);

impl HeldError for HeldBox {
    fn error(&self) -> &(dyn StdError + 'static) {
        &*self.0
    }

    fn into_box(self: Box<Self>) -> BoxError {
        self.0
    }
}

#[derive(Debug)]
struct HeldReport<E>(E);

impl<E> HeldError for HeldReport<E>
where
    E: Deref<Target = dyn StdError + Send + Sync> + Into<BoxError> + Debug + Send + Sync,
{
    fn error(&self) -> &(dyn StdError + 'static) {
        &*self.0
    }

    fn into_box(self: Box<Self>) -> BoxError {
        self.0.into()
    }
}
