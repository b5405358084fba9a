#!/bin/sh
# A stand-in engine: it "compiles" $GRAPHS graphs by copying them from $SOURCE, or loads those that are there already, for which it
# insists that every byte is right. It tells $JOURNAL what it has seen, writes nothing else, and ends with 0, or 1 if it met a torn file.
echo "began" >> "$JOURNAL"
torn=0 loaded=0 compiled=0
for family in "$TORCHINDUCTOR_CACHE_DIR:inductor" "$TRITON_CACHE_DIR:triton"; do
    folder="${family%:*}" name="${family##*:}" number=0
    while [ "$number" -lt "$GRAPHS" ]; do
        file="$folder/$number/graph.so" source="$SOURCE/$name/$number/graph.so"
        if [ -e "$file" ]; then
            loaded=$((loaded + 1))
            cmp -s "$file" "$source" || torn=$((torn + 1))
        else
            compiled=$((compiled + 1))
            mkdir -p "$folder/$number" && cp "$source" "$file"
        fi
        number=$((number + 1))
    done
done
echo "ended loaded=$loaded compiled=$compiled torn=$torn" >> "$JOURNAL"
[ "$torn" = 0 ]
