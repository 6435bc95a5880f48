//! What the guide shows is what happens.
