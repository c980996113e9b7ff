"""Backups of a data folder: all of it as it was at one moment, taken beside a running node, checked, and put back.

A backup is a folder::

    BACKUP/
      data/                 a data folder, without views (they are rebuilt) and captures' logs
      manifest              a checked file of JSON: of every file its size and its SHA-256; written last
      unfinished            only until the manifest is there

``asking`` (the moment) · ``manifest`` · ``copying`` (files, with their checksums) · ``saving`` · ``restoring``.
"""
