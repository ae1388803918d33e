"""Text that must not change in translation, and the masks that models read instead; no markup."""
