//! The running gateway, for the command's loop and for those who ask it by HTTP.

use packetlane_gateway::Gateway;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(super) type Shared = Arc<RwLock<Gateway>>;

pub(super) fn read(gateway: &Shared) -> RwLockReadGuard<'_, Gateway> {
    gateway.read().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn write(gateway: &Shared) -> RwLockWriteGuard<'_, Gateway> {
    gateway.write().unwrap_or_else(PoisonError::into_inner)
}
