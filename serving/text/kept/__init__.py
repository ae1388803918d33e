"""What comes out of a translation as it went in, and what models read for it; no markup."""
