"""Work that takes longer than a request: purges, copies, exports, erasure, the index. The janitor function runs it."""
