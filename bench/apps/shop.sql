-- SPDX-License-Identifier: GPL-2.0-or-later
-- A shop in memory: 700 000 items, 900 000 sales, an index, joins, scans, an update;
-- what follows the line "again" is done once for each pass.
PRAGMA cache_size=-1000000;
CREATE TABLE item(id INTEGER PRIMARY KEY, cat INTEGER, price REAL, name TEXT, note TEXT);
WITH RECURSIVE c(i, x) AS (SELECT 1, 12345 UNION ALL
  SELECT i+1, (x*1103515245+12345) % 2147483648 FROM c WHERE i < :items)
INSERT INTO item SELECT i, x%1000, (x%100000)/100.0, printf('item-%08x-%d', x, i),
  printf('%.*c', 60+x%120, 'n') || x FROM c;
CREATE INDEX item_cat ON item(cat, price);
CREATE TABLE sale(id INTEGER PRIMARY KEY, item INTEGER, n INTEGER);
WITH RECURSIVE c(i, x) AS (SELECT 1, 777 UNION ALL
  SELECT i+1, (x*1103515245+12345) % 2147483648 FROM c WHERE i < :sales)
INSERT INTO sale SELECT i, 1 + (x/7) % (1 + x % :items), x%9 FROM c;
-- again
SELECT count(*), sum(n) FROM sale;
SELECT cat, count(*), round(sum(price*n), 2) FROM sale JOIN item ON item.id = sale.item
  GROUP BY cat ORDER BY 3 DESC LIMIT 10;
SELECT count(*), max(name) FROM item WHERE note LIKE '%777%';
SELECT cat, round(avg(price), 4) FROM item WHERE cat BETWEEN 100 AND 200
  GROUP BY cat ORDER BY 2 LIMIT 5;
UPDATE item SET price = price * 1.1 WHERE cat % 10 = 3;
SELECT round(sum(price), 2) FROM item;
SELECT cat, round(max(price*n), 2) FROM sale JOIN item ON item.id = sale.item
  WHERE item.cat < 300 GROUP BY cat ORDER BY 2 DESC LIMIT 10;
