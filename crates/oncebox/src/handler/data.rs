//! Values that handlers need besides messages, such as clients and settings. Tests: `tests/durable.rs`.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// One value of each type.
#[derive(Clone, Default)]
pub(crate) struct Data(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Data {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Result<&T> {
        let value = self.0.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref());
        value.ok_or_else(|| {
            let what = format!(
                "a handler needs data of type {}; add it with `InboxBuilder::data`",
                type_name::<T>()
            );
            Error::new(ErrorKind::InvalidConfig, what)
        })
    }
}
