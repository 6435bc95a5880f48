//! Values that handlers need besides messages, such as clients and settings. Tests: `tests/data.rs`.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::name::HandlerKey;

/// A value of [`InboxBuilder::data`](crate::InboxBuilder::data), shared by all handlers. It derefs to `T`. Cheap to clone.
pub struct Data<T>(Arc<T>);

impl<T> Data<T> {
    /// Returns the shared value.
    pub fn into_arc(self) -> Arc<T> {
        self.0
    }
}

impl<T> Deref for Data<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Clone for Data<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: fmt::Debug> fmt::Debug for Data<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One value of each type.
#[derive(Clone, Default)]
pub(crate) struct DataMap(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl DataMap {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Result<Data<T>> {
        let value = self.0.get(&TypeId::of::<T>());
        let value = value.and_then(|value| Arc::clone(value).downcast().ok());
        value.map(Data).ok_or_else(|| {
            let what = format!(
                "a handler needs data of type {}; add it with `InboxBuilder::data`",
                type_name::<T>()
            );
            Error::new(ErrorKind::InvalidConfig, what)
        })
    }

    /// Refuses a handler that needs a value which is not there.
    pub(crate) fn check(&self, handler: &HandlerKey, needs: &[NeededData]) -> Result<()> {
        let Some(missing) = needs.iter().find(|needed| !self.0.contains_key(&needed.id)) else {
            return Ok(());
        };
        let what = format!(
            "the handler {handler:?} needs data of type {}; add it with `InboxBuilder::data`",
            missing.name
        );
        Err(Error::new(ErrorKind::InvalidConfig, what))
    }
}

/// Type of a value that a handler needs.
#[derive(Clone, Copy)]
pub(crate) struct NeededData {
    id: TypeId,
    name: &'static str,
}

impl NeededData {
    pub(super) fn of<T: Send + Sync + 'static>() -> Self {
        Self { id: TypeId::of::<T>(), name: type_name::<T>() }
    }
}

impl fmt::Debug for NeededData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
