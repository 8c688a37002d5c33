"""How a store lies on the disk: two LMDB files, journals, locks, and what reads and writes them.

`somatize.store.store` and `somatize.record` are the doors to it; nothing here is public. From the bottom up:
`place` (a directory that is a store), `pages` (LMDB's pages read without mapping them), `environment` (the only
`lmdb` import), `locks`, `schema` and `columns` (bytes and their meaning), `journal` (the files appended to first),
`gather` and `absorb` (journal entries made into rows and blocks), `view` (what a reader sees), `opened` (all that
one process holds of one store) with its `numbers`, `committer` and `writer`.
"""
