"""Tables: what they and their records may be, where they are kept, and what is asked of them."""
