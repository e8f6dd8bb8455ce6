-- Keeps batches of what runs emitted, the newest of each run; one behind which there is another already is left out.
-- ARGV: how many of a run, milliseconds to keep them, then of each batch: run, its offset, count, body.
for i = 4, #ARGV, 4 do
    local key = P .. 'live:' .. ARGV[i]
    redis.pcall('XADD', key, 'MAXLEN', '~', ARGV[2], ARGV[i + 1], 'n', ARGV[i + 2], 'b', ARGV[i + 3])
    redis.call('PEXPIRE', key, ARGV[3])
end
return 1
