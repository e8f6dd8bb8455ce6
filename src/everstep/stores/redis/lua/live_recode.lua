-- Puts other bytes in the place of batches that a run emitted, each only where those are that were read. An entry of a
-- stream cannot be changed, so the stream is made anew with the same ids. ARGV: run, then of each batch: its offset, the
-- old body, the new one.
local key, other, replaced = P .. 'live:' .. ARGV[2], {}, 0
for i = 3, #ARGV, 3 do
    other[ARGV[i]] = i
end
local entries, left = redis.call('XRANGE', key, '-', '+'), redis.call('PTTL', key)
for _, entry in ipairs(entries) do
    local i = other[entry[1]]
    if i and entry[2][4] == ARGV[i + 1] then
        entry[2][4] = ARGV[i + 2]
        replaced = replaced + 1
    end
end
if replaced > 0 then
    redis.call('DEL', key)
    for _, entry in ipairs(entries) do
        redis.call('XADD', key, entry[1], unpack(entry[2]))
    end
    if left > 0 then
        redis.call('PEXPIRE', key, left)
    end
end
return replaced
