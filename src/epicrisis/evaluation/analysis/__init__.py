"""From outcomes to tables, from tables to text and sentences; and the tables that the papers print."""
