//! What a caller of the engine holds while its change is on its way.

/// What `with` returns: kept until the change is published or given up.
pub trait OnPublish {
    /// The change is visible to everybody. Where this is not called, nothing of it is.
    fn published(self);
}

impl OnPublish for () {
    fn published(self) {}
}
