"""Views: what the changelogs of views say, kept in stores that can be read, thrown away and rebuilt.

``catalog`` folds the topic that names the views; ``materialiser`` tails each view's changelog into a ``store``
(``sqlite``: a file per app, ``postgres``: a schema per app), rows and offsets in one transaction; ``changes`` turns
records into rows in bulk; ``question`` is what is asked of one view; ``columns`` knows the types.
"""

from __future__ import annotations
