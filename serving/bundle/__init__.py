"""What a bundle folder holds, read and checked; no session is opened here."""
