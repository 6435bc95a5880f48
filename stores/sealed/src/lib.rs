//! sealed
