-- SPDX-License-Identifier: GPL-2.0-or-later
-- Run by sqlite3 in the guest and by the host's own SQLite: same answers.
PRAGMA cache_size = -200000;
CREATE TABLE item (id INTEGER PRIMARY KEY, k INTEGER, grp INTEGER, body TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 250000)
INSERT INTO item SELECT i, (i * 2654435761) % 1000003, i % 97, printf('%0160d', i * 31) FROM n;
CREATE INDEX item_k ON item (k);
UPDATE item SET body = body || grp WHERE k % 5 = 0;
DELETE FROM item WHERE k % 17 = 0;
PRAGMA integrity_check;
SELECT count(*), sum(k), sum(length(body)), max(body) FROM item;
SELECT grp, count(*), sum(k), min(body) FROM item GROUP BY grp ORDER BY grp;
SELECT a.id, b.id FROM item a JOIN item b ON b.k = (a.k + 7) % 1000003
 WHERE a.id % 1000 = 1 ORDER BY a.id, b.id;
