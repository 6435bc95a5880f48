//! The actor of an operation.

/// Actor of an operation: the name that it gave, and the API token of the request.
///
/// Both are kept apart, because an actor chooses the name freely, and it may look like a token's name.
///
/// ```
/// # use oncebox::store::Actor;
/// assert_eq!(Actor::from("ada").token, None);
/// assert_eq!(Actor::from("ada").with_token(Some("night-shift")).token, Some("night-shift"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Actor<'a> {
    /// The name.
    pub name: &'a str,
    /// Name of the API token that was checked. `None` without one, as for a program that opens the store itself.
    pub token: Option<&'a str>,
}

impl<'a> Actor<'a> {
    /// Sets the name of the API token that was checked.
    #[must_use]
    pub const fn with_token(self, token: Option<&'a str>) -> Self {
        Self { token, ..self }
    }
}

impl<'a> From<&'a str> for Actor<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, token: None }
    }
}

impl<'a> From<&'a String> for Actor<'a> {
    fn from(name: &'a String) -> Self {
        Self::from(name.as_str())
    }
}

impl<'a> From<&'a Box<str>> for Actor<'a> {
    fn from(name: &'a Box<str>) -> Self {
        Self::from(&**name)
    }
}
