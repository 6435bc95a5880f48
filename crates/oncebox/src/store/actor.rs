//! Who asks for an operation.

/// Who asks for an operation: the name that was given, and the token that the request came with.
///
/// The two are kept apart, because everybody may choose a name, and a name may look like anything.
///
/// ```
/// # use oncebox::store::Actor;
/// assert_eq!(Actor::from("ada").token, None);
/// assert_eq!(Actor::from("ada").with_token(Some("night-shift")).token, Some("night-shift"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor<'a> {
    /// The name.
    pub name: &'a str,
    /// The name of the token that was checked. Nothing if there was none, as for a program that has the store itself.
    pub token: Option<&'a str>,
}

impl<'a> Actor<'a> {
    /// The same, with the name of the token that was checked.
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
